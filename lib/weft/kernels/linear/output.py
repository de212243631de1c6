"""Second pass: what every chunk reads, from the state before it and from its own tokens.

    o_i = fade_i S_c^T q_i + sum_{j<=i} fade_ij (q_i . k_j) v_j

A chunk that knows the state before it waits for no other: there is a program for each chunk, head
and tile of V, and with T / C times as many programs as in the first pass, this one is bound by
bandwidth. For chunks of 64 in bf16 and K = V = 128 a chunk of a head reads 48 KiB of q, k and v
and 32 KiB of state and writes 16 KiB of o, for 6.3 MFLOP: 64 FLOP for each byte, where an H100
does 295 in the time of one. A chunk twice as long reads half of the states and computes twice the
triangle.

The gradients are the same sum with the tensors exchanged, since o is linear in q, in k and in v:

    o   reads q,  k,  v   and  S       tokens before it
    dq  reads do, v,  k   and  S^T     tokens before it
    dk  reads v,  do, q   and  dS^T    tokens after it
    dv  reads k,  q,  do  and  dS      tokens after it

So one kernel makes all four, in two directions.
"""

import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention import head
from weft.kernels.linear.launch import ChunkProblem, state_view, view
from weft.kernels.linear.tile import head_left, load_chunk, place, state_tile, store_chunk, times


def output(
    x: ChunkProblem, name: str, q: Tensor, k: Tensor, v: Tensor, states: Tensor
) -> Tensor:  # fmt: skip
    """The "output" o [B, T, H, V]; or "dq", "dk", "dv", the tensors in the places listed above."""
    transposed, backwards = name in ("dq", "dk"), name in ("dk", "dv")
    o = v.new_empty(v.shape)
    x.launch(
        name, output_kernel, ("T", "V"), q.shape[-1], v.shape[-1], q=view(q), k=view(k),
        v=view(v), s=state_view(states, transposed), o=view(o), BACKWARDS=backwards,
    )  # fmt: skip
    return o


@triton.jit
def output_kernel(
    q, k, v, g, s, o, T, H, N, CHUNK, K: tl.constexpr, V: tl.constexpr,
    BACKWARDS: tl.constexpr, TILE_T: tl.constexpr, TILE_K: tl.constexpr, TILE_V: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """One chunk of o, TILE_V columns of it.

    1. For each tile of K: O += Q S and A += Q K^T.
    2. Let O fade by row and A by pair, and keep of A the triangle that is seen.
    3. O += A V, and store it.
    """
    _, i_v, i_c, i_h, i_b = place(1, tl.cdiv(V, TILE_V), N, H)
    first = (i_c * CHUNK).to(tl.int32)
    rows = tl.minimum(CHUNK, T - first)
    q, k, v = head(q, i_b, i_h), head(k, i_b, i_h), head(v, i_b, i_h)
    b_o = tl.zeros([TILE_T, TILE_V], tl.float32)
    b_a = tl.zeros([TILE_T, TILE_T], tl.float32)
    for i_k in range(tl.cdiv(K, TILE_K)):
        b_q = load_chunk(q, first, rows, i_k, K, TILE_T, TILE_K)
        b_k = load_chunk(k, first, rows, i_k, K, TILE_T, TILE_K)
        p_s, m_s = state_tile(s, (i_b * H + i_h) * N + i_c, i_k, i_v, K, V, TILE_K, TILE_V)
        b_o = times(b_q, tl.load(p_s, mask=m_s, other=0.0), b_o, EXACT)
        b_a = tl.dot(b_q, tl.trans(b_k), b_a, input_precision="ieee")
    o_t = tl.arange(0, TILE_T)
    m_seen = o_t[:, None] <= o_t[None, :] if BACKWARDS else o_t[:, None] >= o_t[None, :]
    if g is not None:
        b_left, total = head_left(head(g, i_b, i_h), first, rows, TILE_T)
        b_own = total - b_left if BACKWARDS else b_left
        b_o *= tl.exp2(b_own)[:, None]
        # Behind the diagonal the difference is above 0: its power could be infinite.
        b_a *= tl.exp2(tl.where(m_seen, b_own[:, None] - b_own[None, :], 0.0))
    b_a = tl.where(m_seen, b_a, 0.0)
    b_v = load_chunk(v, first, rows, i_v, V, TILE_T, TILE_V)
    b_o = times(b_a, b_v, b_o, EXACT)
    store_chunk(head(o, i_b, i_h), first, rows, i_v, b_o, V)
