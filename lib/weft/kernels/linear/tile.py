"""What the passes of linear attention do with a chunk: load it, fade it, multiply it.

In registers a chunk is a matrix of a power of two rows, TILE_T, of which the first `rows` exist,
and of TILE_K or TILE_V columns of a head; the rest is filled with zeros.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from weft.kernels.attention import LOG2E, row_pointer

GONE = tl.constexpr(-160.0)  # 2^-160 is 0 in fp32: a token that leaves less resets its state


class StateView(NamedTuple):
    """States [B, H, N, K, V], in one piece but for their rows and columns: address, two strides.

    With the strides exchanged it is a view of the transposed states.
    """

    p: Any
    k: Any
    v: Any


@triton.jit
def place(TILES_K: tl.constexpr, TILES_V: tl.constexpr, N, H):
    """Tile of K, tile of V, chunk, head and batch of this program; tiles of a chunk are neighbours.

    64 bits, because what these are multiplied with may pass 2^31.
    """
    i = tl.program_id(0).to(tl.int64)
    i_k, i_v, i_n = i % TILES_K, i // TILES_K % TILES_V, i // TILES_K // TILES_V
    return i_k.to(tl.int32), i_v.to(tl.int32), i_n % N, i_n // N % H, i_n // N // H


@triton.jit
def load_chunk(x, first, rows, i_w, WIDTH: tl.constexpr, TILE_T: tl.constexpr, TILE: tl.constexpr):
    """Tokens from `first` on of a head, [TILE_T, TILE]: the columns of tile i_w of its WIDTH."""
    o_t, o_w = tl.arange(0, TILE_T), i_w * TILE + tl.arange(0, TILE)
    m = (o_t < rows)[:, None]
    if WIDTH % TILE:
        m = m & (o_w < WIDTH)[None, :]
    return tl.load(row_pointer(x, first) + o_t[:, None] * x.t + o_w[None, :], mask=m, other=0.0)


@triton.jit
def store_chunk(x, first, rows, i_w, b, WIDTH: tl.constexpr):
    """Round a tile to the tensor's type and write what of it exists."""
    o_t, o_w = tl.arange(0, b.shape[0]), tl.arange(0, b.shape[1]) + i_w * b.shape[1]
    m = (o_t < rows)[:, None] & (o_w < WIDTH)[None, :]
    p = row_pointer(x, first) + o_t[:, None] * x.t + o_w[None, :]
    tl.store(p, b.to(x.p.dtype.element_ty), mask=m)


@triton.jit
def state_tile(
    s, i_s, i_k, i_v, K: tl.constexpr, V: tl.constexpr, TILE_K: tl.constexpr, TILE_V: tl.constexpr
):
    """Pointers into state i_s, and which of them lie inside, [TILE_K, TILE_V]."""
    o_k = i_k * TILE_K + tl.arange(0, TILE_K)[:, None]
    o_v = i_v * TILE_V + tl.arange(0, TILE_V)[None, :]
    return s.p + i_s * (K * V) + o_k * s.k + o_v * s.v, (o_k < K) & (o_v < V)


@triton.jit
def head_left(g, first, rows, TILE_T: tl.constexpr):
    """log2 of what each token of a chunk finds left of what was there before; and what they all do.

    Sums of the logarithms of the decays up to a token, its own included, hence the last token's
    is what all leave; what lies behind it has decay 1. They are rounded to fp32, so that behind
    each reset in a chunk their differences are good to 1e-5 less.
    """
    o_t = tl.arange(0, TILE_T)
    b_g = tl.load(row_pointer(g, first) + o_t * g.t, mask=o_t < rows, other=0.0).to(tl.float32)
    b_left = tl.cumsum(tl.maximum(b_g * LOG2E, GONE), 0)
    return b_left, tl.sum(tl.where(o_t == TILE_T - 1, b_left, 0.0), 0)


@triton.jit
def channel_left(
    left, first, rows, i_k, K: tl.constexpr, TILE_T: tl.constexpr, TILE_K: tl.constexpr
):
    """The same for each of TILE_K channels, where it has been added up and stored."""
    b_left = load_chunk(left, first, rows, i_k, K, TILE_T, TILE_K)
    o_k = i_k * TILE_K + tl.arange(0, TILE_K)
    b_total = tl.load(row_pointer(left, first + rows - 1) + o_k, mask=o_k < K, other=0.0)
    return b_left, b_total


@triton.jit
def times(b_x, b_y, b_sum, EXACT: tl.constexpr):
    """b_sum + b_x b_y, where one of the two is in fp32, and rounded to bf16 if the other is.

    Not to fp16, which ends at 65504: sums over all tokens may be larger. These products are in
    TF32, which rounds as fp16 does and reaches as far as fp32. What is EXACT was given in fp32.
    """
    if b_x.dtype == tl.bfloat16 or b_y.dtype == tl.bfloat16:
        b_sum = tl.dot(b_x.to(tl.bfloat16), b_y.to(tl.bfloat16), b_sum)
    elif EXACT:
        b_sum = tl.dot(b_x, b_y, b_sum, input_precision="ieee")
    else:
        b_sum = tl.dot(b_x.to(tl.float32), b_y.to(tl.float32), b_sum, input_precision="tf32")
    return b_sum
