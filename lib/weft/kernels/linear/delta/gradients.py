"""Backward, last pass: from what flows back into what is written to all that it is made of.

With u_i = beta_i y_i, y_i = v_i - S_{i-1}^T k_i (faded): du, as it comes from all that reads u
later, becomes G = T^T dU with T from the first pass, since tokens of a chunk read each other. Then

    dv_i = beta_i G_i                    -dv_i is the gradient of what k_i read
    dbeta_i = G_i . y_i

and k_i, as a query that reads before i is written, has the gradient that any query has:

    X_i = fade_i S G_i + sum_{j<i} fade_ij (G_i . u_j) k_j        dk_i = -beta_i X_i + ...

X also saves y: G_i . y_i = G_i . v_i - k_i . X_i. The decays are as in `gated`, with two readings.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention import LOG2E, head, row_pointer
from weft.kernels.linear.delta.inverse import Solved, load_beta
from weft.kernels.linear.launch import ChunkProblem, state_view, view
from weft.kernels.linear.tile import (
    GONE,
    head_left,
    load_chunk,
    place,
    state_tile,
    store_chunk,
    times,
)


def gradients(
    x: ChunkProblem, beta: Tensor, found: Solved, u: Tensor, du: Tensor, do: Tensor,
    states: Tensor, dstates: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of q, k, v, beta and the decays."""
    _, _, _, K, V = x.sizes
    dv = torch.empty_like(x.v)
    x.launch(
        "delta dv", dv_kernel, ("T", "V"), K, V, t=found.t, beta=view(beta), du=view(du),
        dv=view(dv),
    )  # fmt: skip
    dq, dk, dbeta = torch.empty_like(x.q), torch.empty_like(x.k), torch.empty_like(beta)
    dg = None if x.g is None else torch.empty_like(x.g)
    x.launch(
        "delta dqk", dqk_kernel, ("T",), K, V, q=view(x.q), k=view(x.k), v=view(x.v),
        beta=view(beta), u=view(u), du=view(du), do=view(do), s=state_view(states),
        ds=state_view(dstates), dq=view(dq), dk=view(dk), dbeta=view(dbeta), dg=view(dg),
    )  # fmt: skip
    return dq, dk, dv, dbeta, dg


@triton.jit
def dv_kernel(
    t, beta, du, dv, T, H, N, CHUNK, V: tl.constexpr, TILE_T: tl.constexpr,
    TILE_V: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """G = T^T dU in the place of dU, and dV = beta G: TILE_V columns of one chunk."""
    _, i_v, i_c, i_h, i_b = place(1, tl.cdiv(V, TILE_V), N, H)
    first = (i_c * CHUNK).to(tl.int32)
    rows = tl.minimum(CHUNK, T - first)
    du = head(du, i_b, i_h)
    o_t = tl.arange(0, TILE_T)
    p_t = ((i_b * H + i_h) * N + i_c) * TILE_T * TILE_T + o_t[None, :] * TILE_T + o_t[:, None]
    b_du = load_chunk(du, first, rows, i_v, V, TILE_T, TILE_V)
    b_g = times(tl.load(t + p_t), b_du, tl.zeros([TILE_T, TILE_V], tl.float32), EXACT)
    store_chunk(du, first, rows, i_v, b_g, V)
    b_beta = load_beta(head(beta, i_b, i_h), first, rows, TILE_T)
    store_chunk(head(dv, i_b, i_h), first, rows, i_v, b_beta[:, None] * b_g, V)


@triton.jit
def dqk_kernel(
    q, k, v, beta, g, u, du, do, s, ds, dq, dk, dbeta, dg, T, H, N, CHUNK, K: tl.constexpr,
    V: tl.constexpr, TILE_T: tl.constexpr, TILE_K: tl.constexpr, TILE_V: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """The gradients of one chunk's q, k, beta and decays.

    1. Over tiles of V: dO U^T and G U^T, the gradients of what tokens of the chunk read of each
       other, those of queries with the diagonal and those of keys without; and G . V.
    2. For each tile of K, over tiles of V: dO S^T, G S^T and U dS^T, which come from outside the
       chunk and fade; then what comes from inside it.
    3. From all these, the decays: what lies on either side of every token (see `decay`).
    """
    _, _, i_c, i_h, i_b = place(1, 1, N, H)
    i_s, first = (i_b * H + i_h) * N + i_c, (i_c * CHUNK).to(tl.int32)
    rows = tl.minimum(CHUNK, T - first)
    q, k, v, u = head(q, i_b, i_h), head(k, i_b, i_h), head(v, i_b, i_h), head(u, i_b, i_h)
    do, du, dq, dk = head(do, i_b, i_h), head(du, i_b, i_h), head(dq, i_b, i_h), head(dk, i_b, i_h)
    b_beta = load_beta(head(beta, i_b, i_h), first, rows, TILE_T)
    o_t = tl.arange(0, TILE_T)
    b_by_q = tl.zeros([TILE_T, TILE_T], tl.float32)
    b_by_k = tl.zeros([TILE_T, TILE_T], tl.float32)
    b_dbeta = tl.zeros([TILE_T], tl.float32)
    for i_v in range(tl.cdiv(V, TILE_V)):
        b_u = load_chunk(u, first, rows, i_v, V, TILE_T, TILE_V)
        b_do = load_chunk(do, first, rows, i_v, V, TILE_T, TILE_V)
        b_du = load_chunk(du, first, rows, i_v, V, TILE_T, TILE_V)
        b_v = load_chunk(v, first, rows, i_v, V, TILE_T, TILE_V)
        b_by_q = times(b_do, tl.trans(b_u), b_by_q, EXACT)
        b_by_k = times(b_du, tl.trans(b_u), b_by_k, EXACT)
        b_dbeta += tl.sum(b_du * b_v, 1)
    m_seen = o_t[:, None] >= o_t[None, :]
    if g is not None:
        b_left, total = head_left(head(g, i_b, i_h), first, rows, TILE_T)
        b_own, b_after = tl.exp2(b_left), tl.exp2(total - b_left)
        b_fade = tl.exp2(tl.where(m_seen, b_left[:, None] - b_left[None, :], 0.0))
        b_by_q, b_by_k = b_by_q * b_fade, b_by_k * b_fade
    b_by_q = tl.where(m_seen, b_by_q, 0.0).to(u.p.dtype.element_ty)
    b_by_k = tl.where(o_t[:, None] > o_t[None, :], b_by_k, 0.0).to(u.p.dtype.element_ty)
    b_read, b_written = tl.zeros([TILE_T], tl.float32), tl.zeros([TILE_T], tl.float32)
    b_both = tl.zeros([TILE_K], tl.float32)
    for i_k in range(tl.cdiv(K, TILE_K)):
        b_dq, b_x = tl.zeros([TILE_T, TILE_K], tl.float32), tl.zeros([TILE_T, TILE_K], tl.float32)
        b_dk = tl.zeros([TILE_T, TILE_K], tl.float32)
        b_none = tl.zeros([TILE_T, TILE_K], tl.float32)
        for i_v in range(tl.cdiv(V, TILE_V)):
            p_s, m_s = state_tile(s, i_s, i_k, i_v, K, V, TILE_K, TILE_V)
            b_s = tl.load(p_s, mask=m_s, other=0.0)
            p_ds, m_s = state_tile(ds, i_s, i_k, i_v, K, V, TILE_K, TILE_V)
            b_ds = tl.load(p_ds, mask=m_s, other=0.0)
            b_do = load_chunk(do, first, rows, i_v, V, TILE_T, TILE_V)
            b_du = load_chunk(du, first, rows, i_v, V, TILE_T, TILE_V)
            b_u = load_chunk(u, first, rows, i_v, V, TILE_T, TILE_V)
            b_dq = times(b_do, tl.trans(b_s), b_dq, EXACT)
            b_x = times(b_du, tl.trans(b_s), b_x, EXACT)
            b_dk = times(b_u, tl.trans(b_ds), b_dk, EXACT)
            if g is not None:
                b_both += tl.sum(b_s.to(tl.float32) * b_ds.to(tl.float32), 1)
        b_q = load_chunk(q, first, rows, i_k, K, TILE_T, TILE_K)
        b_k = load_chunk(k, first, rows, i_k, K, TILE_T, TILE_K)
        if g is not None:
            b_dq, b_x, b_dk = b_dq * b_own[:, None], b_x * b_own[:, None], b_dk * b_after[:, None]
            b_read += tl.sum(b_q * b_dq, 1) - b_beta * tl.sum(b_k * b_x, 1)
            b_written += tl.sum(b_k * b_dk, 1)
        store_chunk(dq, first, rows, i_k, times(b_by_q, b_k, b_dq, EXACT), K)
        b_x = times(b_by_k, b_k, b_x, EXACT)
        b_dbeta -= tl.sum(b_k * b_x, 1)
        b_dk -= b_beta[:, None] * b_x
        b_dk = times(tl.trans(b_by_q), b_q, b_dk, EXACT)
        b_dk -= times(tl.trans(b_by_k), b_beta[:, None] * b_k, b_none, EXACT)
        store_chunk(dk, first, rows, i_k, b_dk, K)
    p_dbeta = row_pointer(head(dbeta, i_b, i_h), first) + o_t * dbeta.t
    tl.store(p_dbeta, b_dbeta.to(dbeta.p.dtype.element_ty), mask=o_t < rows)
    if g is not None:
        b_qk, b_kk = tl.zeros([TILE_T, TILE_T], tl.float32), tl.zeros([TILE_T, TILE_T], tl.float32)
        for i_k in range(tl.cdiv(K, TILE_K)):
            b_q = load_chunk(q, first, rows, i_k, K, TILE_T, TILE_K)
            b_k = load_chunk(k, first, rows, i_k, K, TILE_T, TILE_K)
            b_qk = tl.dot(b_q, tl.trans(b_k), b_qk, input_precision="ieee")
            b_kk = tl.dot(b_k, tl.trans(b_k), b_kk, input_precision="ieee")
        b_pair = b_by_q * b_qk - b_beta[:, None] * (b_by_k * b_kk)
        b_read += tl.sum(b_pair, 1) - tl.sum(b_pair, 0)
        b_dg = tl.cumsum(b_read, 0, reverse=True) + tl.cumsum(b_written, 0) - b_written
        b_dg += tl.sum(b_both, 0) * tl.exp2(total)
        # What resets the state may be moved a little and still resets it.
        p_g = row_pointer(head(g, i_b, i_h), first) + o_t * g.t
        m_alive = tl.load(p_g, mask=o_t < rows, other=0.0).to(tl.float32) * LOG2E > GONE
        p_dg = row_pointer(head(dg, i_b, i_h), first) + o_t * dg.t
        tl.store(p_dg, tl.where(m_alive, b_dg, 0.0).to(dg.p.dtype.element_ty), mask=o_t < rows)
