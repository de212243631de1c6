"""Backward, the decays: what a token's decay does is on the way of all that passes it.

The decay of token t is a factor of what the tokens from t on read of what was written before t.
So its logarithm's gradient adds up, for each pair of a reading and a writing that t lies between,
how the two would gain from each other. Of a chunk with the state S before it and the gradient dS
of the state after it, the writings and readings are either its own or those outside:

    d log_decay_t = sum_{i>=t} q_i . dq_i from S                    before the chunk, read in it
                  + sum_{j<t}  k_j . dk_j from dS                   written in it, read behind it
                  + sum_{j<t<=i} fade_ij (q_i . k_j) (do_i . v_j)   both in it
                  + fade S . dS                                     neither

What a running sum over the whole sequence would give by differences is here added up without any
but that of the pairs, whose terms are the same in both sums. A chunk of a head reads q, k, v, do
and both states, 128 KiB for chunks of 64 in bf16 and K = V = 128, and writes 64 numbers.
"""

import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention import LOG2E, head, row_pointer
from weft.kernels.linear.launch import ChunkProblem, state_view, view
from weft.kernels.linear.tile import GONE, head_left, load_chunk, place, state_tile, times


def decay(x: ChunkProblem, do: Tensor, states: Tensor, dstates: Tensor) -> Tensor:
    """The gradient of the logarithms of the decays, [B, T, H]."""
    B, T, H, K, V = x.sizes
    dg = x.g.new_empty(B, T, H)
    x.launch(
        "decay", decay_kernel, ("T",), K, V, q=view(x.q), k=view(x.k), v=view(x.v), do=view(do),
        s=state_view(states), ds=state_view(dstates), dg=view(dg),
    )  # fmt: skip
    return dg


@triton.jit
def decay_kernel(
    q, k, v, g, do, s, ds, dg, T, H, N, CHUNK, K: tl.constexpr, V: tl.constexpr,
    TILE_T: tl.constexpr, TILE_K: tl.constexpr, TILE_V: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The decays of one chunk of a head.

    1. For each tile of K and of V: Q . dO S^T, K . V dS^T and S . dS; beside them Q K^T and
       dO V^T, once each.
    2. Let each fade, and add up what lies on either side of every token.
    """
    _, _, i_c, i_h, i_b = place(1, 1, N, H)
    i_s, first = (i_b * H + i_h) * N + i_c, (i_c * CHUNK).to(tl.int32)
    rows = tl.minimum(CHUNK, T - first)
    q, k, v, do = head(q, i_b, i_h), head(k, i_b, i_h), head(v, i_b, i_h), head(do, i_b, i_h)
    b_read, b_written = tl.zeros([TILE_T], tl.float32), tl.zeros([TILE_T], tl.float32)
    b_both = tl.zeros([TILE_K], tl.float32)
    b_qk, b_dov = tl.zeros([TILE_T, TILE_T], tl.float32), tl.zeros([TILE_T, TILE_T], tl.float32)
    for i_k in range(tl.cdiv(K, TILE_K)):
        b_q = load_chunk(q, first, rows, i_k, K, TILE_T, TILE_K)
        b_k = load_chunk(k, first, rows, i_k, K, TILE_T, TILE_K)
        b_qk = tl.dot(b_q, tl.trans(b_k), b_qk, input_precision="ieee")
        b_dq = tl.zeros([TILE_T, TILE_K], tl.float32)
        b_dk = tl.zeros([TILE_T, TILE_K], tl.float32)
        for i_v in range(tl.cdiv(V, TILE_V)):
            b_v = load_chunk(v, first, rows, i_v, V, TILE_T, TILE_V)
            b_do = load_chunk(do, first, rows, i_v, V, TILE_T, TILE_V)
            if i_k == 0:
                b_dov = tl.dot(b_do, tl.trans(b_v), b_dov, input_precision="ieee")
            p_s, m_s = state_tile(s, i_s, i_k, i_v, K, V, TILE_K, TILE_V)
            b_s = tl.load(p_s, mask=m_s, other=0.0)
            p_ds, m_s = state_tile(ds, i_s, i_k, i_v, K, V, TILE_K, TILE_V)
            b_ds = tl.load(p_ds, mask=m_s, other=0.0)
            b_dq = times(b_do, tl.trans(b_s), b_dq, EXACT)
            b_dk = times(b_v, tl.trans(b_ds), b_dk, EXACT)
            b_both += tl.sum(b_s.to(tl.float32) * b_ds.to(tl.float32), 1)
        b_read += tl.sum(b_q.to(tl.float32) * b_dq, 1)
        b_written += tl.sum(b_k.to(tl.float32) * b_dk, 1)
    b_left, total = head_left(head(g, i_b, i_h), first, rows, TILE_T)
    o_t = tl.arange(0, TILE_T)
    m_seen = o_t[:, None] >= o_t[None, :]
    b_fade = tl.exp2(tl.where(m_seen, b_left[:, None] - b_left[None, :], 0.0))
    b_pair = tl.where(m_seen, b_qk * b_dov * b_fade, 0.0)
    b_read = b_read * tl.exp2(b_left) + tl.sum(b_pair, 1) - tl.sum(b_pair, 0)
    b_written = b_written * tl.exp2(total - b_left)
    b_dg = tl.cumsum(b_read, 0, reverse=True) + tl.cumsum(b_written, 0) - b_written
    b_dg += tl.sum(b_both, 0) * tl.exp2(total)
    # What resets the state may be moved a little and still resets it.
    p_g = row_pointer(head(g, i_b, i_h), first) + o_t * g.t
    m_alive = tl.load(p_g, mask=o_t < rows, other=0.0).to(tl.float32) * LOG2E > GONE
    p_dg = row_pointer(head(dg, i_b, i_h), first) + o_t * dg.t
    b_dg = tl.where(m_alive, b_dg, 0.0)
    tl.store(p_dg, b_dg.to(dg.p.dtype.element_ty), mask=o_t < rows)
