"""First pass: the triangular system of each chunk, solved for whatever the state before it is.

    u_i + sum_{j<i} A_ij u_j = beta_i (v_i - fade_i S^T k_i)      A_ij = beta_i fade_ij (k_i . k_j)

A is strictly lower triangular, T = (I + A)^{-1} lower triangular with ones. With

    U = T diag(beta) V        W = -T diag(beta fade) K

which need no state, the chunk writes U + W S: the next pass, in which chunks wait for each other,
only has this product left (Yang et al. 2024, the WY representation).

T is made from the inner blocks outwards: blocks of one row are inverted by themselves, and where
two neighbours are, T1 above and T2 below, the block that joins them is -T2 A21 T1. In matrices of
the whole chunk, with A21 of all pairs of neighbours at once: T <- T - T A21 T, log2 C times. No
power of A is formed: where keys repeat, that of the sum I - A + A^2 - ... would have terms of
10^17 that cancel.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention import head, padded, row_pointer
from weft.kernels.linear.launch import ChunkProblem, view
from weft.kernels.linear.tile import head_left, load_chunk, place, store_chunk, times


class Solved(NamedTuple):
    """T [B, H, N, C, C], padded; U [B, T, H, V] and W [B, T, H, K], in the type of states."""

    t: Tensor
    u: Tensor
    w: Tensor


def inverse(x: ChunkProblem, beta: Tensor) -> Solved:
    """T, U and W of all chunks."""
    B, T, H, K, V = x.sizes
    kept = torch.bfloat16 if x.q.dtype == torch.bfloat16 else torch.float32
    C = padded(x.chunk)
    t = x.q.new_empty(B, H, x.chunks, C, C, dtype=kept)
    u, w = (x.q.new_empty(B, T, H, width, dtype=kept) for width in (V, K))
    given = {"k": view(x.k), "v": view(x.v), "beta": view(beta)}
    x.launch("inverse", inverse_kernel, ("T",), K, V, **given, t=t, u=view(u), w=view(w))
    return Solved(t, u, w)


@triton.jit
def inverse_kernel(
    k, v, beta, g, t, u, w, T, H, N, CHUNK, K: tl.constexpr, V: tl.constexpr,
    TILE_T: tl.constexpr, TILE_K: tl.constexpr, TILE_V: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """T, U and W of one chunk of a head.

    1. A = beta fade K K^T below the diagonal, over tiles of K.
    2. T, from blocks of one row to the whole.
    3. Store T; T diag(beta) V and -T diag(beta fade) K, tile by tile.
    """
    _, _, i_c, i_h, i_b = place(1, 1, N, H)
    first = (i_c * CHUNK).to(tl.int32)
    rows = tl.minimum(CHUNK, T - first)
    k, v, u, w = head(k, i_b, i_h), head(v, i_b, i_h), head(u, i_b, i_h), head(w, i_b, i_h)
    b_beta = load_beta(head(beta, i_b, i_h), first, rows, TILE_T)
    b_a = tl.zeros([TILE_T, TILE_T], tl.float32)
    for i_k in range(tl.cdiv(K, TILE_K)):
        b_k = load_chunk(k, first, rows, i_k, K, TILE_T, TILE_K)
        b_a = tl.dot(b_k, tl.trans(b_k), b_a, input_precision="ieee")
    o_t = tl.arange(0, TILE_T)
    b_own = tl.full([TILE_T], 1.0, tl.float32)
    if g is not None:
        b_left, _ = head_left(head(g, i_b, i_h), first, rows, TILE_T)
        b_own = tl.exp2(b_left)
        m_seen = o_t[:, None] >= o_t[None, :]
        b_a *= tl.exp2(tl.where(m_seen, b_left[:, None] - b_left[None, :], 0.0))
    b_a *= b_beta[:, None]
    b_t = tl.where(o_t[:, None] == o_t[None, :], 1.0, 0.0)
    half = 1
    while half < TILE_T:
        o_half = o_t // half
        m_join = (o_half[:, None] == o_half[None, :] + 1) & (o_half % 2 == 1)[:, None]
        b_join = product(b_t, tl.where(m_join, b_a, 0.0), EXACT)
        b_t -= product(b_join, b_t, EXACT)
        half *= 2
    p_t = ((i_b * H + i_h) * N + i_c) * TILE_T * TILE_T + o_t[:, None] * TILE_T + o_t[None, :]
    tl.store(t + p_t, b_t.to(t.dtype.element_ty))
    b_tv, b_tk = b_t * b_beta[None, :], b_t * (b_beta * b_own)[None, :]
    for i_v in range(tl.cdiv(V, TILE_V)):
        b_v = load_chunk(v, first, rows, i_v, V, TILE_T, TILE_V)
        b_u = times(b_tv, b_v, tl.zeros([TILE_T, TILE_V], tl.float32), EXACT)
        store_chunk(u, first, rows, i_v, b_u, V)
    for i_k in range(tl.cdiv(K, TILE_K)):
        b_k = load_chunk(k, first, rows, i_k, K, TILE_T, TILE_K)
        b_w = times(b_tk, b_k, tl.zeros([TILE_T, TILE_K], tl.float32), EXACT)
        store_chunk(w, first, rows, i_k, -b_w, K)


@triton.jit
def product(b_x, b_y, EXACT: tl.constexpr):
    """b_x b_y, both in fp32: on the tensor cores in TF32, unless what was given is fp32 too."""
    if EXACT:
        b = tl.dot(b_x, b_y, input_precision="ieee")
    else:
        b = tl.dot(b_x, b_y, input_precision="tf32")
    return b


@triton.jit
def load_beta(beta, first, rows, TILE_T: tl.constexpr):
    """How much of its correction each token writes; 0 where there is none."""
    o_t = tl.arange(0, TILE_T)
    p = row_pointer(beta, first) + o_t * beta.t
    return tl.load(p, mask=o_t < rows, other=0.0).to(tl.float32)
