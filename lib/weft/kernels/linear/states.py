"""First pass: the state before each chunk, by walking along the chunks of each head.

    S_{c+1} = fade S_c + sum_j (fade_j k_j) v_j^T

with what is left after the chunk, of the state before it and of what token j wrote. This is the
only pass in which a chunk waits for the one before. A state is cut into tiles, and each tile of
each head has a program of its own, which keeps it in fp32 in registers from the first chunk to
the last: B H (K / 64) (V / 64) programs, each of T / C short turns. So this pass is bound by
parallelism: with one sequence, 16 heads and K = V = 128 there are 64 programs for the 132
multiprocessors of an H100.

For chunks of 64 in bf16, K = V = 128, a turn of all tiles of a head reads 32 KiB of k and v (each
of them twice, since there are two tiles in each direction; the second time from the cache) and
writes 32 KiB of state. Had every chunk a program of its own, for what it adds alone, and another
pass summed these up, they would be written and read once more, in fp32, 128 KiB for each chunk:
more than everything that is read and written otherwise.

Backward the same recurrence runs from the last chunk to the first, with q in the place of k and
the gradient of o in that of v: dS_c = fade dS_{c+1} + sum_i (fade_i q_i) do_i^T.
"""

import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention import head
from weft.kernels.linear.launch import ChunkProblem, state_view, view
from weft.kernels.linear.tile import channel_left, head_left, load_chunk, place, state_tile


def states(
    x: ChunkProblem, k: Tensor, v: Tensor, initial: Tensor | None, backwards: bool = False
) -> tuple[Tensor, Tensor]:
    """The state at the beginning of each chunk [B, H, N, K, V], and after the last [B, H, K, V].

    Backwards, the gradient of the state at the end of each chunk, and of the one before the first.
    """
    each, last = x.states(), x.state()
    x.launch(
        "dstates" if backwards else "states", states_kernel, ("K", "V"), x.sizes.K, x.sizes.V,
        k=view(k), v=view(v),
        initial=None if initial is None else state_view(initial.contiguous()),
        states=state_view(each), last=state_view(last), BACKWARDS=backwards,
    )  # fmt: skip
    return each, last


@triton.jit
def states_kernel(
    k, v, g, left, initial, states, last, T, H, N, CHUNK, K: tl.constexpr, V: tl.constexpr,
    BACKWARDS: tl.constexpr, TILE_T: tl.constexpr, TILE_K: tl.constexpr, TILE_V: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """One tile of a head's state, at the near end of all chunks.

    1. Start from the initial state, or 0.
    2. For each chunk, store the tile; then let it fade, and add what the chunk's tokens write.
    3. Store what is left after the last.
    """
    i_k, i_v, _, i_h, i_b = place(tl.cdiv(K, TILE_K), tl.cdiv(V, TILE_V), 1, H)
    i_s = i_b * H + i_h
    k, v = head(k, i_b, i_h), head(v, i_b, i_h)
    b_s = tl.zeros([TILE_K, TILE_V], tl.float32)
    if initial is not None:
        p_s, m_s = state_tile(initial, i_s, i_k, i_v, K, V, TILE_K, TILE_V)
        b_s += tl.load(p_s, mask=m_s, other=0.0)
    for i in range(N):
        i_c = i
        if BACKWARDS:
            i_c = N - 1 - i
        p_s, m_s = state_tile(states, i_s * N + i_c, i_k, i_v, K, V, TILE_K, TILE_V)
        tl.store(p_s, b_s.to(states.p.dtype.element_ty), mask=m_s)
        first = i_c * CHUNK
        rows = tl.minimum(CHUNK, T - first)
        b_k = load_chunk(k, first, rows, i_k, K, TILE_T, TILE_K)
        b_v = load_chunk(v, first, rows, i_v, V, TILE_T, TILE_V)
        if left is not None:
            b_left, b_total = channel_left(
                head(left, i_b, i_h), first, rows, i_k, K, TILE_T, TILE_K
            )
            b_after = b_left if BACKWARDS else b_total[None, :] - b_left
            b_k = (b_k * tl.exp2(b_after)).to(b_k.dtype)
            b_s *= tl.exp2(b_total)[:, None]
        elif g is not None:
            b_left, total = head_left(head(g, i_b, i_h), first, rows, TILE_T)
            b_after = b_left if BACKWARDS else total - b_left
            b_k = (b_k * tl.exp2(b_after)[:, None]).to(b_k.dtype)
            b_s *= tl.exp2(total)
        b_s = tl.dot(tl.trans(b_k), b_v, b_s, input_precision="ieee")
    p_s, m_s = state_tile(last, i_s, i_k, i_v, K, V, TILE_K, TILE_V)
    tl.store(p_s, b_s, mask=m_s)
