"""Second pass: what each chunk writes, and the state before it, from the first chunk to the last.

    U + W S                      what is written, where S is the state before the chunk
    fade S + K^T fade (U + W S)  the state before the next

A product more than in `gated`, and W S needs all of K at once. So a program has all rows of its
tile of a state, and there are B H (V / 32) of them. Backward the same runs from the last chunk to
the first, with the transposed of each product: from dS, the gradient of the state after a chunk,

    dU = (Q K^T fade)^T dO + fade K dS    of what it writes, as far as it is read later
    fade dS + Q^T fade dO + W^T dU        of the state before it

where the first product of dU is a pass of its own before, as no chunk waits for another in it.
"""

import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention import head, padded
from weft.kernels.linear.delta.inverse import Solved
from weft.kernels.linear.launch import ChunkProblem, state_view, view
from weft.kernels.linear.tile import head_left, load_chunk, place, state_tile, store_chunk, times

LARGE = 2**14  # bytes of a chunk of K, of which there are six: q, k and w, two of each


def written(
    x: ChunkProblem, found: Solved, initial: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The state before each chunk, what each token writes, and the state after the last.

    They are [B, H, N, K, V], [B, T, H, V] in the place of U, and [B, H, K, V].
    """
    _, _, _, K, V = x.sizes
    each, last = x.states(), x.state()
    if initial is not None:
        initial = state_view(initial.contiguous())
    x.launch(
        "written" + wide(x), written_kernel, ("V",), K, V, k=view(x.k), u=view(found.u),
        w=view(found.w), initial=initial, states=state_view(each), last=state_view(last),
    )  # fmt: skip
    return each, found.u, last


def inside(x: ChunkProblem, do: Tensor) -> Tensor:
    """What flows back into what each token writes from its own chunk, [B, T, H, V] in fp32."""
    _, _, _, K, V = x.sizes
    du = do.new_empty(do.shape, dtype=x.state().dtype)
    given = {"q": view(x.q), "k": view(x.k), "do": view(do), "du": view(du)}
    x.launch("inside", inside_kernel, ("T", "V"), K, V, **given)
    return du


def flows(
    x: ChunkProblem, found: Solved, do: Tensor, du: Tensor, dlast: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the state after each chunk, of U, and of the state before the first chunk.

    That of U is put in the place of `du`, to which it adds.
    """
    _, _, _, K, V = x.sizes
    each, dinitial = x.states(), x.state()
    x.launch(
        "flows" + wide(x), flows_kernel, ("V",), K, V, q=view(x.q), k=view(x.k), w=view(found.w),
        do=view(do), du=view(du), dlast=None if dlast is None else state_view(dlast.contiguous()),
        dstates=state_view(each), dinitial=state_view(dinitial),
    )  # fmt: skip
    return each, du, dinitial


def wide(x: ChunkProblem) -> str:
    """What is added to the name of a pass that has all of K at once, where a chunk of K is large.

    Then its loads go one after the other, for which alone there is shared memory.
    """
    large = padded(x.chunk) * padded(x.sizes.K) * x.q.element_size() > LARGE
    return ", wide" if large else ""


@triton.jit
def written_kernel(
    k, w, g, u, initial, states, last, T, H, N, CHUNK, K: tl.constexpr, V: tl.constexpr,
    TILE_T: tl.constexpr, TILE_V: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """TILE_V columns of a head's state, at the beginning of all chunks.

    1. Start from the initial state, or 0.
    2. For each chunk, store the state; U + W S is written in the place of U; let the state fade,
       and add what was written.
    3. Store what is left after the last.
    """
    WIDE: tl.constexpr = padded(K)
    _, i_v, _, i_h, i_b = place(1, tl.cdiv(V, TILE_V), 1, H)
    i_s = i_b * H + i_h
    k, w, u = head(k, i_b, i_h), head(w, i_b, i_h), head(u, i_b, i_h)
    b_s = tl.zeros([WIDE, TILE_V], tl.float32)
    if initial is not None:
        p_s, m_s = state_tile(initial, i_s, 0, i_v, K, V, WIDE, TILE_V)
        b_s += tl.load(p_s, mask=m_s, other=0.0)
    for i_c in range(N):
        p_s, m_s = state_tile(states, i_s * N + i_c, 0, i_v, K, V, WIDE, TILE_V)
        tl.store(p_s, b_s.to(states.p.dtype.element_ty), mask=m_s)
        first = i_c * CHUNK
        rows = tl.minimum(CHUNK, T - first)
        b_w = load_chunk(w, first, rows, 0, K, TILE_T, WIDE)
        b_u = load_chunk(u, first, rows, i_v, V, TILE_T, TILE_V).to(tl.float32)
        b_u = times(b_w, b_s, b_u, EXACT)
        store_chunk(u, first, rows, i_v, b_u, V)
        b_k = load_chunk(k, first, rows, 0, K, TILE_T, WIDE)
        if g is not None:
            b_left, total = head_left(head(g, i_b, i_h), first, rows, TILE_T)
            b_u *= tl.exp2(total - b_left)[:, None]
            b_s *= tl.exp2(total)
        b_s = times(tl.trans(b_k), b_u, b_s, EXACT)
    p_s, m_s = state_tile(last, i_s, 0, i_v, K, V, WIDE, TILE_V)
    tl.store(p_s, b_s, mask=m_s)


@triton.jit
def inside_kernel(
    q, k, g, do, du, T, H, N, CHUNK, K: tl.constexpr, V: tl.constexpr,
    TILE_T: tl.constexpr, TILE_K: tl.constexpr, TILE_V: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """(Q K^T fade)^T dO of one chunk, TILE_V columns of it: what its own queries read."""
    _, i_v, i_c, i_h, i_b = place(1, tl.cdiv(V, TILE_V), N, H)
    first = (i_c * CHUNK).to(tl.int32)
    rows = tl.minimum(CHUNK, T - first)
    q, k = head(q, i_b, i_h), head(k, i_b, i_h)
    b_a = tl.zeros([TILE_T, TILE_T], tl.float32)
    for i_k in range(tl.cdiv(K, TILE_K)):
        b_q = load_chunk(q, first, rows, i_k, K, TILE_T, TILE_K)
        b_k = load_chunk(k, first, rows, i_k, K, TILE_T, TILE_K)
        b_a = tl.dot(b_k, tl.trans(b_q), b_a, input_precision="ieee")
    o_t = tl.arange(0, TILE_T)
    m_seen = o_t[:, None] <= o_t[None, :]
    if g is not None:
        b_left, _ = head_left(head(g, i_b, i_h), first, rows, TILE_T)
        b_a *= tl.exp2(tl.where(m_seen, b_left[None, :] - b_left[:, None], 0.0))
    b_do = load_chunk(head(do, i_b, i_h), first, rows, i_v, V, TILE_T, TILE_V)
    b_none = tl.zeros([TILE_T, TILE_V], tl.float32)
    b_du = times(tl.where(m_seen, b_a, 0.0), b_do, b_none, EXACT)
    store_chunk(head(du, i_b, i_h), first, rows, i_v, b_du, V)


@triton.jit
def flows_kernel(
    q, k, w, g, do, du, dlast, dstates, dinitial, T, H, N, CHUNK, K: tl.constexpr,
    V: tl.constexpr, TILE_T: tl.constexpr, TILE_V: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """TILE_V columns of the gradient of a head's state, at the end of all chunks.

    As `written_kernel`, in the other direction; fade K dS is added to `du`.
    """
    WIDE: tl.constexpr = padded(K)
    _, i_v, _, i_h, i_b = place(1, tl.cdiv(V, TILE_V), 1, H)
    i_s = i_b * H + i_h
    q, k, w = head(q, i_b, i_h), head(k, i_b, i_h), head(w, i_b, i_h)
    do, du = head(do, i_b, i_h), head(du, i_b, i_h)
    b_ds = tl.zeros([WIDE, TILE_V], tl.float32)
    if dlast is not None:
        p_s, m_s = state_tile(dlast, i_s, 0, i_v, K, V, WIDE, TILE_V)
        b_ds += tl.load(p_s, mask=m_s, other=0.0)
    for i in range(N):
        i_c = N - 1 - i
        p_s, m_s = state_tile(dstates, i_s * N + i_c, 0, i_v, K, V, WIDE, TILE_V)
        tl.store(p_s, b_ds.to(dstates.p.dtype.element_ty), mask=m_s)
        first = i_c * CHUNK
        rows = tl.minimum(CHUNK, T - first)
        b_k = load_chunk(k, first, rows, 0, K, TILE_T, WIDE)
        b_du = times(b_k, b_ds, tl.zeros([TILE_T, TILE_V], tl.float32), EXACT)
        b_do = load_chunk(do, first, rows, i_v, V, TILE_T, TILE_V).to(tl.float32)
        if g is not None:
            b_left, total = head_left(head(g, i_b, i_h), first, rows, TILE_T)
            b_du *= tl.exp2(total - b_left)[:, None]
            b_do *= tl.exp2(b_left)[:, None]
            b_ds *= tl.exp2(total)
        b_du += load_chunk(du, first, rows, i_v, V, TILE_T, TILE_V)
        store_chunk(du, first, rows, i_v, b_du, V)
        b_q = load_chunk(q, first, rows, 0, K, TILE_T, WIDE)
        b_ds = times(tl.trans(b_q), b_do, b_ds, EXACT)
        b_w = load_chunk(w, first, rows, 0, K, TILE_T, WIDE)
        b_ds = times(tl.trans(b_w), b_du, b_ds, EXACT)
    p_s, m_s = state_tile(dinitial, i_s, 0, i_v, K, V, WIDE, TILE_V)
    tl.store(p_s, b_ds, mask=m_s)
