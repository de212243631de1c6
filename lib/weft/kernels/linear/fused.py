"""The first version: one program walks along a head's chunks, with the state on the chip.

    O = Q S + tril(Q K^T) V,    S = S + K^T V        chunk by chunk, both in one loop

It reads q, k and v once and writes o once: for chunks of 64 in bf16 and K = V = 128, 64 KiB for a
chunk of a head, and no state between the first and the last. Nothing that computes chunks can move
fewer bytes. But a program has all of K and some columns of V, so there are B H (V / 32) programs,
each with T / C long turns, one after the other: with one sequence and 16 heads 64 of them, for the
132 multiprocessors of an H100, and each waits for its own products. The passes of `states` and
`output` move 2.5 times the bytes, two fifths of it states, and fill the chip once T is long.
"""

import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention import head, padded
from weft.kernels.linear.launch import ChunkProblem, state_view, view
from weft.kernels.linear.tile import (
    head_left,
    load_chunk,
    place,
    state_tile,
    store_chunk,
    times,
)


def forward(x: ChunkProblem, initial: Tensor | None) -> tuple[Tensor, Tensor]:
    """o [B, T, H, V] and the state after the last token, by one program per head and tile of V."""
    if x.g is not None and x.g.dim() == 4:
        raise ValueError("log_decay has a number for each channel, must have one for each head")
    o, last = x.v.new_empty(x.v.shape), x.state()
    x.launch(
        "fused", fused_kernel, ("V",), x.sizes.K, x.sizes.V, q=view(x.q), k=view(x.k),
        v=view(x.v), initial=None if initial is None else state_view(initial.contiguous()),
        o=view(o), last=state_view(last),
    )  # fmt: skip
    return o, last


@triton.jit
def fused_kernel(
    q, k, v, g, initial, o, last, T, H, N, CHUNK, K: tl.constexpr, V: tl.constexpr,
    TILE_T: tl.constexpr, TILE_V: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """All chunks of one head, TILE_V columns of o and of the state.

    1. Start from the initial state, or 0.
    2. For each chunk: O = faded Q S + the triangle of faded scores V; store it; then let S fade,
       and add what the chunk's tokens write.
    3. Store what is left after the last.
    """
    _, i_v, _, i_h, i_b = place(1, tl.cdiv(V, TILE_V), 1, H)
    ALL: tl.constexpr = padded(K)
    q, k, v, o = head(q, i_b, i_h), head(k, i_b, i_h), head(v, i_b, i_h), head(o, i_b, i_h)
    b_s = tl.zeros([ALL, TILE_V], tl.float32)
    if initial is not None:
        p_s, m_s = state_tile(initial, i_b * H + i_h, 0, i_v, K, V, ALL, TILE_V)
        b_s += tl.load(p_s, mask=m_s, other=0.0)
    o_t = tl.arange(0, TILE_T)
    m_seen = o_t[:, None] >= o_t[None, :]
    for i_c in range(N):
        first = i_c * CHUNK
        rows = tl.minimum(CHUNK, T - first)
        b_q = load_chunk(q, first, rows, 0, K, TILE_T, ALL)
        b_k = load_chunk(k, first, rows, 0, K, TILE_T, ALL)
        b_v = load_chunk(v, first, rows, i_v, V, TILE_T, TILE_V)
        b_a = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
        b_o = times(b_q, b_s, tl.zeros([TILE_T, TILE_V], tl.float32), EXACT)
        if g is not None:
            b_left, total = head_left(head(g, i_b, i_h), first, rows, TILE_T)
            b_o *= tl.exp2(b_left)[:, None]
            b_a *= tl.exp2(tl.where(m_seen, b_left[:, None] - b_left[None, :], 0.0))
            b_k = (b_k * tl.exp2(total - b_left)[:, None]).to(b_k.dtype)
            b_s *= tl.exp2(total)
        b_o = times(tl.where(m_seen, b_a, 0.0), b_v, b_o, EXACT)
        store_chunk(o, first, rows, i_v, b_o, V)
        b_s = tl.dot(tl.trans(b_k), b_v, b_s, input_precision="ieee")
    p_s, m_s = state_tile(last, i_b * H + i_h, 0, i_v, K, V, ALL, TILE_V)
    tl.store(p_s, b_s, mask=m_s)
