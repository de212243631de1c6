"""FlashAttention-1 forward: keys and values outside, and the rows of O come and go.

Dao et al. 2022, algorithm 1. One program per head and batch, so that a single sequence of 16 heads
keeps 16 multiprocessors busy and no more. Its warps share a tile of keys out among them, and each
works on all rows: the maximum, the sum and the output of a row then lie in pieces in all warps, and
have to meet through shared memory at every visit. Dao 2023, section 3.3, calls that split-K.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention.call import call, compiled
from weft.kernels.attention.launch import Problem
from weft.kernels.attention.tile import LN2, far, load_tile, seen, store_tile
from weft.kernels.code import Pass


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    mask: Tensor | None = None,
    lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """weft.kernels.attention.attention by FlashAttention-1: slower, and here to be compared.

    It gives the same, but that a value which is NaN or infinite may reach rows that do not look
    at it. The backward pass is the same for all versions.
    """
    return call(forward, q, k, v, causal, scale, mask, lse)


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The one kernel of the forward pass, as it is launched on a chip."""
    return compiled(forward, target, **kind)


def forward(x: Problem) -> tuple[Tensor, Tensor]:
    """O [B, T, H, V] and the log-sum-exp of its rows [B, H, T], by one program per head.

    What comes and goes is fp32: rounding O at every visit would add up.
    """
    B, T, _, H, _, _, V = x.sizes
    o = x.q.new_empty(B, T, H, V, dtype=torch.float32)
    top, total = (x.q.new_empty(B, H, T, dtype=torch.float32) for _ in range(2))
    tile = x.tile("fa1")
    x.launch(
        "fa1", head, H * B, tile, **x.inputs(), p_o=o, p_top=top, p_sum=total
    )  # fmt: skip
    return o.to(x.q.dtype), (top + total.log2()) * LN2.value


@triton.jit
def head(
    p_q, p_k, p_v, p_mask, p_o, p_top, p_sum,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_ks, stride_kg,
    stride_vb, stride_vs, stride_vg, stride_mb, stride_mh, stride_mt, stride_ms,
    T, S, H, R, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    """All of one head: each tile of keys, cut into WARPS slices, meets every tile of queries."""
    i_h, i_b = (tl.program_id(0) % H).to(tl.int64), (tl.program_id(0) // H).to(tl.int64)
    p_q += i_b * stride_qb + i_h * stride_qh
    p_k += i_b * stride_kb + i_h // R * stride_kg
    p_v += i_b * stride_vb + i_h // R * stride_vg
    if p_mask is not None:
        p_mask += i_b * stride_mb + i_h * stride_mh
    p_o += (i_b * T * H + i_h) * V
    p_top += (i_b * H + i_h) * T
    p_sum += (i_b * H + i_h) * T
    clear(p_o, p_top, p_sum, T, H, V, WIDE_V, TILE_Q)
    o_k = tl.arange(0, TILE_K)
    SLICE: tl.constexpr = TILE_K // WARPS
    for start in range(0, S, TILE_K):
        b_k = load_tile(p_k + far(start, stride_ks), o_k, stride_ks, S - start, K, WIDE_K, True)
        b_v = load_tile(p_v + far(start, stride_vs), o_k, stride_vs, S - start, V, WIDE_V, True)
        b_k = tl.permute(tl.reshape(b_k, [WARPS, SLICE, WIDE_K]), [0, 2, 1])
        b_v = tl.reshape(b_v, [WARPS, SLICE, WIDE_V])
        begin = 0
        if CAUSAL:
            begin = tl.maximum(start - (S - T), 0) // TILE_Q * TILE_Q
        tl.debug_barrier()  # what the last tile of keys wrote, this one reads
        for first in range(begin, T, TILE_Q):
            visit(
                p_q, p_mask, p_o, p_top, p_sum, b_k, b_v, stride_qt, stride_mt, stride_ms,
                first, start, T, S, H, scale, K, V, WIDE_K, WIDE_V, CAUSAL, TILE_Q,
            )  # fmt: skip


@triton.jit
def visit(
    p_q, p_mask, p_o, p_top, p_sum, b_k, b_v, stride_qt, stride_mt, stride_ms,
    first, start, T, S, H, scale,
    K: tl.constexpr, V: tl.constexpr, WIDE_K: tl.constexpr, WIDE_V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr,
):  # fmt: skip
    """Read rows of O, merge into them what they see in one tile of keys, and write them back.

    b_k [WARPS, WIDE_K, SLICE] and b_v [WARPS, SLICE, WIDE_V]: Triton gives each
    warp one slice.
    """
    WARPS: tl.constexpr = b_v.shape[0]
    SLICE: tl.constexpr = b_v.shape[1]
    o_q = tl.arange(0, TILE_Q)
    b_q = load_tile(p_q + far(first, stride_qt), o_q, stride_qt, T - first, K, WIDE_K, True)
    b_s = tl.dot(tl.broadcast_to(b_q[None], [WARPS, TILE_Q, WIDE_K]), b_k, input_precision="ieee")
    o_key = tl.arange(0, WARPS)[:, None, None] * SLICE + tl.arange(0, SLICE)[None, None, :]
    o_row = (first + o_q)[None, :, None]
    m_seen = seen(p_mask, stride_mt, stride_ms, o_row, start + o_key, T, S, CAUSAL)
    b_s = tl.where(m_seen, b_s * scale, float("-inf"))
    b_top = tl.max(tl.max(b_s, 2), 0)  # over the warps, through shared memory
    b_ref = tl.where(b_top == float("-inf"), 0.0, b_top)
    b_p = tl.exp2(b_s - b_ref[None, :, None])
    b_sum = tl.sum(tl.sum(b_p, 2), 0)  # and again
    b_o = tl.sum(tl.dot(b_p.to(b_v.dtype), b_v, input_precision="ieee"), 0)  # and all of O
    p_top, p_sum, m_row = p_top + first + o_q, p_sum + first + o_q, first + o_q < T
    b_old = tl.load(p_top, mask=m_row, other=float("-inf"))
    b_new = tl.maximum(b_old, b_top)
    b_ref = tl.where(b_new == float("-inf"), 0.0, b_new)
    b_keep = tl.exp2(b_old - b_ref) * tl.load(p_sum, mask=m_row, other=0.0)
    b_add = tl.exp2(b_top - b_ref)
    b_sum = b_keep + b_add * b_sum
    b_div = tl.where(b_sum == 0.0, 1.0, b_sum)
    p_o += far(first, H * V)
    b_was = load_tile(p_o, o_q, H * V, T - first, V, WIDE_V, True)
    b_o = b_was * (b_keep / b_div)[:, None] + b_o * (b_add / b_div)[:, None]
    store_tile(p_o, b_o, o_q, H * V, T - first, V, WIDE_V)
    tl.store(p_top, b_new, mask=m_row)
    tl.store(p_sum, b_sum, mask=m_row)


@triton.jit
def clear(
    p_o, p_top, p_sum, T, H, V: tl.constexpr, WIDE_V: tl.constexpr, TILE_Q: tl.constexpr
):  # fmt: skip
    """Before the first key: O and the sums are 0, the maxima -inf."""
    o_q = tl.arange(0, TILE_Q)
    for first in range(0, T, TILE_Q):
        b_o = tl.zeros([TILE_Q, WIDE_V], tl.float32)
        store_tile(p_o + far(first, H * V), b_o, o_q, H * V, T - first, V, WIDE_V)
        m_row = first + o_q < T
        tl.store(p_top + first + o_q, tl.full([TILE_Q], float("-inf"), tl.float32), mask=m_row)
        tl.store(p_sum + first + o_q, tl.zeros([TILE_Q], tl.float32), mask=m_row)
