"""The passes for decays by channel, where a score is no product of a query and a key any more.

    A_ij = sum_x q_ix k_jx exp(left_ix - left_jx)        left: sums of the logarithms of the decays

The difference belongs to a pair and to a channel. Cut in two, as the matrix product of q exp(left)
and k exp(-left), its second half grows without bound. But with r, what is left at some token
between j and i, both exp(left_i - r) and exp(r - left_j) are at most 1. So a chunk is halved: of
the pairs that its middle separates, the scores are one product, with r there. Each half is halved
again, down to single tokens, and each pair is separated once: log2 C products on the tensor cores
in the place of one, each of the whole chunk and its rows and columns masked. (GLA's kernels halve
to 16 tokens by products, and compute the rest one by one.)

`left` is a pass of its own, since each level looks up another row of it: it reads a logarithm for
each channel and writes a sum in fp32, 32 KiB for chunks of 64 and K = 128.
"""

import triton
import triton.language as tl
from torch import Tensor, float32

from weft.kernels.attention import LOG2E, head, row_pointer
from weft.kernels.linear.launch import ChunkProblem, state_view, view
from weft.kernels.linear.tile import (
    GONE,
    channel_left,
    load_chunk,
    place,
    state_tile,
    store_chunk,
    times,
)


def added_up(x: ChunkProblem) -> ChunkProblem:
    """The problem, with log2 of what each channel keeps from before its chunk, [B, T, H, K]."""
    x = x._replace(left=x.g.new_empty(x.g.shape, dtype=float32))
    x.launch("left", left_kernel, ("T", "K"), x.sizes.K, 1)
    return x


def channel_output(x: ChunkProblem, name: str, q: Tensor, k: Tensor, v: Tensor, states: Tensor):
    """The "output" o, or "dv" for k, q and do in the places of q, k and v."""
    o = v.new_empty(v.shape)
    x.launch(
        f"channel {name}", channel_output_kernel, ("T", "V"), x.sizes.K, x.sizes.V, q=view(q),
        k=view(k), v=view(v), s=state_view(states), o=view(o), BACKWARDS=name == "dv",
    )  # fmt: skip
    return o


def channel_gradients(x: ChunkProblem, do: Tensor, states: Tensor, dstates: Tensor):
    """The gradients of q, k and the logarithms of the decays, each [B, T, H, K]."""
    dq, dk, dg = (one.new_empty(one.shape) for one in (x.q, x.k, x.g))
    x.launch(
        "channel dqkg", channel_dqkg_kernel, ("T", "K"), x.sizes.K, x.sizes.V, q=view(x.q),
        k=view(x.k), v=view(x.v), do=view(do), s=state_view(states), ds=state_view(dstates),
        dq=view(dq), dk=view(dk), dg=view(dg),
    )  # fmt: skip
    return dq, dk, dg


@triton.jit
def left_kernel(
    g, left, T, H, N, CHUNK, K: tl.constexpr, TILE_T: tl.constexpr, TILE_K: tl.constexpr
):
    """Add up the logarithms of one chunk's decays, TILE_K channels of them, in units of log 2."""
    i_k, _, i_c, i_h, i_b = place(tl.cdiv(K, TILE_K), 1, N, H)
    first = (i_c * CHUNK).to(tl.int32)
    rows = tl.minimum(CHUNK, T - first)
    b_g = load_chunk(head(g, i_b, i_h), first, rows, i_k, K, TILE_T, TILE_K).to(tl.float32)
    b_left = tl.cumsum(tl.maximum(b_g * LOG2E, GONE), 0)
    store_chunk(head(left, i_b, i_h), first, rows, i_k, b_left, K)


@triton.jit
def level(
    left, b_left, HALF, first, rows, i_k, K: tl.constexpr, TILE_T: tl.constexpr,
    TILE_K: tl.constexpr,
):  # fmt: skip
    """How far each token has faded at the middle of its 2 HALF tokens, and which pairs that serves.

    A later token counts from the middle on, an earlier one to it; both factors are at most 1.
    """
    o_t, o_k = tl.arange(0, TILE_T), i_k * TILE_K + tl.arange(0, TILE_K)
    o_middle = o_t // (2 * HALF) * (2 * HALF) + HALF - 1
    m = (o_middle < rows)[:, None] & (o_k < K)[None, :]
    p = row_pointer(left, first) + o_middle[:, None] * left.t + o_k[None, :]
    b_fade = tl.exp2(-tl.abs(b_left - tl.load(p, mask=m, other=0.0)))
    o_half = o_t // HALF
    m_pair = (o_half[:, None] == o_half[None, :] + 1) & (o_half % 2 == 1)[:, None]
    return b_fade, m_pair


@triton.jit
def channel_output_kernel(
    q, k, v, left, s, o, T, H, N, CHUNK, K: tl.constexpr, V: tl.constexpr,
    BACKWARDS: tl.constexpr, TILE_T: tl.constexpr, TILE_K: tl.constexpr, TILE_V: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """One chunk of o, TILE_V columns of it.

    1. For each tile of K: O += Q faded S, and the scores of Q and K, level by level.
    2. O += A V, and store it.
    """
    _, i_v, i_c, i_h, i_b = place(1, tl.cdiv(V, TILE_V), N, H)
    first = (i_c * CHUNK).to(tl.int32)
    rows = tl.minimum(CHUNK, T - first)
    q, k, v, left = head(q, i_b, i_h), head(k, i_b, i_h), head(v, i_b, i_h), head(left, i_b, i_h)
    b_o = tl.zeros([TILE_T, TILE_V], tl.float32)
    b_a = tl.zeros([TILE_T, TILE_T], tl.float32)
    o_t = tl.arange(0, TILE_T)
    for i_k in range(tl.cdiv(K, TILE_K)):
        b_q = load_chunk(q, first, rows, i_k, K, TILE_T, TILE_K)
        b_k = load_chunk(k, first, rows, i_k, K, TILE_T, TILE_K)
        b_left, b_total = channel_left(left, first, rows, i_k, K, TILE_T, TILE_K)
        b_own = tl.exp2(b_total[None, :] - b_left if BACKWARDS else b_left)
        p_s, m_s = state_tile(s, (i_b * H + i_h) * N + i_c, i_k, i_v, K, V, TILE_K, TILE_V)
        b_faded = (b_q * b_own).to(b_q.dtype)
        b_o = times(b_faded, tl.load(p_s, mask=m_s, other=0.0), b_o, EXACT)
        b_same = tl.sum(b_q.to(tl.float32) * b_k.to(tl.float32), 1)
        b_a += tl.where(o_t[:, None] == o_t[None, :], b_same[:, None], 0.0)
        half = 1
        while half < rows:
            b_fade, m_pair = level(left, b_left, half, first, rows, i_k, K, TILE_T, TILE_K)
            if BACKWARDS:
                m_pair = tl.trans(m_pair)
            b_qk = tl.dot(
                (b_q * b_fade).to(b_q.dtype), tl.trans((b_k * b_fade).to(b_k.dtype)),
                input_precision="ieee",
            )  # fmt: skip
            b_a += tl.where(m_pair, b_qk, 0.0)
            half *= 2
    b_v = load_chunk(v, first, rows, i_v, V, TILE_T, TILE_V)
    b_o = times(b_a, b_v, b_o, EXACT)
    store_chunk(head(o, i_b, i_h), first, rows, i_v, b_o, V)


@triton.jit
def channel_dqkg_kernel(
    q, k, v, g, left, do, s, ds, dq, dk, dg, T, H, N, CHUNK, K: tl.constexpr, V: tl.constexpr,
    TILE_T: tl.constexpr, TILE_K: tl.constexpr, TILE_V: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """TILE_K channels of the gradients of a chunk's q, k and decays.

    1. For each tile of V: dO S^T, V dS^T, S . dS and dO V^T, the scores' gradient.
    2. Let the first two fade: what comes to q and k from outside the chunk.
    3. Level by level, what comes from inside it.
    4. From all these, the decays: what lies on either side of every token (see `decay`).
    """
    i_k, _, i_c, i_h, i_b = place(tl.cdiv(K, TILE_K), 1, N, H)
    i_s, first = (i_b * H + i_h) * N + i_c, (i_c * CHUNK).to(tl.int32)
    rows = tl.minimum(CHUNK, T - first)
    v, do, left = head(v, i_b, i_h), head(do, i_b, i_h), head(left, i_b, i_h)
    b_dq, b_dk = tl.zeros([TILE_T, TILE_K], tl.float32), tl.zeros([TILE_T, TILE_K], tl.float32)
    b_da, b_both = tl.zeros([TILE_T, TILE_T], tl.float32), tl.zeros([TILE_K], tl.float32)
    for i_v in range(tl.cdiv(V, TILE_V)):
        b_v = load_chunk(v, first, rows, i_v, V, TILE_T, TILE_V)
        b_do = load_chunk(do, first, rows, i_v, V, TILE_T, TILE_V)
        b_da = tl.dot(b_do, tl.trans(b_v), b_da, input_precision="ieee")
        p_s, m_s = state_tile(s, i_s, i_k, i_v, K, V, TILE_K, TILE_V)
        b_s = tl.load(p_s, mask=m_s, other=0.0)
        p_ds, m_s = state_tile(ds, i_s, i_k, i_v, K, V, TILE_K, TILE_V)
        b_ds = tl.load(p_ds, mask=m_s, other=0.0)
        b_dq = times(b_do, tl.trans(b_s), b_dq, EXACT)
        b_dk = times(b_v, tl.trans(b_ds), b_dk, EXACT)
        b_both += tl.sum(b_s.to(tl.float32) * b_ds.to(tl.float32), 1)
    b_q = load_chunk(head(q, i_b, i_h), first, rows, i_k, K, TILE_T, TILE_K)
    b_k = load_chunk(head(k, i_b, i_h), first, rows, i_k, K, TILE_T, TILE_K)
    b_left, b_total = channel_left(left, first, rows, i_k, K, TILE_T, TILE_K)
    b_dq *= tl.exp2(b_left)
    b_dk *= tl.exp2(b_total[None, :] - b_left)
    b_written = b_k * b_dk
    o_t = tl.arange(0, TILE_T)
    b_same = tl.sum(tl.where(o_t[:, None] == o_t[None, :], b_da, 0.0), 1)[:, None]
    b_dq += b_same * b_k
    b_dk += b_same * b_q
    half = 1
    while half < rows:
        b_fade, m_pair = level(left, b_left, half, first, rows, i_k, K, TILE_T, TILE_K)
        b_pair = tl.where(m_pair, b_da, 0.0)
        b_none = tl.zeros([TILE_T, TILE_K], tl.float32)
        b_dq += times(b_pair, (b_k * b_fade).to(b_k.dtype), b_none, EXACT) * b_fade
        b_dk += times(tl.trans(b_pair), (b_q * b_fade).to(b_q.dtype), b_none, EXACT) * b_fade
        half *= 2
    store_chunk(head(dq, i_b, i_h), first, rows, i_k, b_dq, K)
    store_chunk(head(dk, i_b, i_h), first, rows, i_k, b_dk, K)
    b_dg = tl.cumsum(b_q * b_dq - (b_k * b_dk - b_written), 0, reverse=True)
    b_dg += tl.cumsum(b_written, 0) - b_written + (b_both * tl.exp2(b_total))[None, :]
    b_g = load_chunk(head(g, i_b, i_h), first, rows, i_k, K, TILE_T, TILE_K).to(tl.float32)
    b_dg = tl.where(b_g * LOG2E > GONE, b_dg, 0.0)  # what resets the state still does a bit above
    store_chunk(head(dg, i_b, i_h), first, rows, i_k, b_dg, K)
