"""FlashAttention-1 forward: keys and values outside, and the rows of O come and go.

Dao et al. 2022, algorithm 1. One program per head and batch, so that a single sequence of 16 heads
keeps 16 multiprocessors busy and no more. Its warps share a tile of keys out among them, and each
works on all rows: the maximum, the sum and the output of a row then lie in pieces in all warps, and
have to meet through shared memory at every visit. Dao 2023, section 3.3, calls that split-K.
Beside FlashAttention-2 it has to be read with both in mind: few heads leave multiprocessors idle.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention.face import differentiable, launched
from weft.kernels.attention.launch import Problem, view
from weft.kernels.attention.tile import (
    LN2,
    head,
    head_mask,
    load_rows,
    load_tile,
    padded,
    store_rows,
    store_tile,
    visible,
)
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

    The backward pass is the same for all versions.
    """
    return differentiable(forward, q, k, v, causal, scale, mask, lse)


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The one kernel of the forward pass, as it is launched on a chip."""
    return launched(attention, target, **kind)


def forward(x: Problem) -> tuple[Tensor, Tensor]:
    """O [B, T, H, V] and the log-sum-exp of its rows [B, T, H], by one program per head.

    What comes and goes is fp32: rounding O at every visit would add up.
    """
    B, T, _, H, _, _, V = x.sizes
    o_BTHV = x.q.new_empty(B, T, H, V, dtype=torch.float32)
    max_BTH, sum_BTH = x.per_row(), x.per_row()
    state = {"o": view(o_BTHV), "top": view(max_BTH), "total": view(sum_BTH)}
    x.launch("fa1", fa1_kernel, H * B, x.tile("fa1"), **state)
    return o_BTHV.to(x.q.dtype), (max_BTH + sum_BTH.log2()) * LN2.value


@triton.jit
def fa1_kernel(
    q, k, v, mask, o, top, total, T, S, H, R, scale, K: tl.constexpr, V: tl.constexpr,
    CAUSAL: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    """All of one head: each tile of keys, cut into WARPS slices, meets every tile of queries.

    1. O = 0, the rows' sums 0, their maxima -inf, in slow memory.
    2. Load a tile of K and V; each warp keeps a slice of the keys in its registers.
    3. For each tile of queries: read Q, O, maximum and sum, merge in what the tile of keys
       says, write O, maximum and sum back.
    4. On to the next tile of keys.
    """
    i_h, i_b = (tl.program_id(0) % H).to(tl.int64), (tl.program_id(0) // H).to(tl.int64)
    mask = head_mask(mask, i_b, i_h)
    q = head(q, i_b, i_h)
    k, v = head(k, i_b, i_h // R), head(v, i_b, i_h // R)
    o, top, total = head(o, i_b, i_h), head(top, i_b, i_h), head(total, i_b, i_h)
    initialize(o, top, total, T, V, TILE_Q)
    o_k = tl.arange(0, TILE_K)
    SLICE: tl.constexpr = TILE_K // WARPS
    for start in range(0, S, TILE_K):
        b_k = load_tile(k, start, o_k, S, K, True)
        b_v = load_tile(v, start, o_k, S, V, True)
        b_k = tl.permute(tl.reshape(b_k, [WARPS, SLICE, padded(K)]), [0, 2, 1])
        b_v = tl.reshape(b_v, [WARPS, SLICE, padded(V)])
        begin = 0
        if CAUSAL:
            begin = tl.maximum(start - (S - T), 0) // TILE_Q * TILE_Q
        tl.debug_barrier()  # what the last tile of keys wrote, this one reads
        for first in range(begin, T, TILE_Q):
            visit(q, mask, o, top, total, b_k, b_v, first, start, T, S, scale, K, V, CAUSAL, TILE_Q)


@triton.jit
def visit(
    q, mask, o, top, total, b_k, b_v, first, start, T, S, scale,
    K: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, TILE_Q: tl.constexpr,
):  # fmt: skip
    """Read rows of O, merge into them what they see in one tile of keys, and write them back.

    b_k [WARPS, padded K, SLICE] and b_v [WARPS, SLICE, padded V]: Triton gives each warp one slice.
    """
    WARPS: tl.constexpr = b_v.shape[0]
    SLICE: tl.constexpr = b_v.shape[1]
    o_q = tl.arange(0, TILE_Q)
    b_q = load_tile(q, first, o_q, T, K, True)
    b_q = tl.broadcast_to(b_q[None], [WARPS, TILE_Q, padded(K)])
    b_s = tl.dot(b_q, b_k, input_precision="ieee")
    o_key = tl.arange(0, WARPS)[:, None, None] * SLICE + tl.arange(0, SLICE)[None, None, :]
    o_row = (first + o_q)[None, :, None]
    m_visible = visible(mask, None, o_row, start + o_key, T, S, CAUSAL)
    b_s = tl.where(m_visible, b_s * scale, float("-inf"))
    b_max = tl.max(tl.max(b_s, 2), 0)  # over the warps, through shared memory
    b_base = tl.where(b_max == float("-inf"), 0.0, b_max)
    b_p = tl.exp2(b_s - b_base[None, :, None])
    b_sum = tl.sum(tl.sum(b_p, 2), 0)  # and again
    b_o = tl.sum(tl.dot(b_p.to(b_v.dtype), b_v, input_precision="ieee"), 0)  # and all of O
    b_old = load_rows(top, first, o_q, T, float("-inf"))
    b_new = tl.maximum(b_old, b_max)
    b_base = tl.where(b_new == float("-inf"), 0.0, b_new)
    b_keep = tl.exp2(b_old - b_base) * load_rows(total, first, o_q, T, 0.0)
    b_add = tl.exp2(b_max - b_base)
    b_sum = b_keep + b_add * b_sum
    b_div = tl.where(b_sum == 0.0, 1.0, b_sum)
    b_was = load_tile(o, first, o_q, T, V, True)
    b_o = b_was * (b_keep / b_div)[:, None] + b_o * (b_add / b_div)[:, None]
    store_tile(o, first, b_o, o_q, T, V)
    store_rows(top, first, b_new, o_q, T)
    store_rows(total, first, b_sum, o_q, T)


@triton.jit
def initialize(o, top, total, T, V: tl.constexpr, TILE_Q: tl.constexpr):
    """Before the first key: O and the sums are 0, the maxima -inf."""
    o_q = tl.arange(0, TILE_Q)
    for first in range(0, T, TILE_Q):
        store_tile(o, first, tl.zeros([TILE_Q, padded(V)], tl.float32), o_q, T, V)
        store_rows(top, first, tl.full([TILE_Q], float("-inf"), tl.float32), o_q, T)
        store_rows(total, first, tl.zeros([TILE_Q], tl.float32), o_q, T)
