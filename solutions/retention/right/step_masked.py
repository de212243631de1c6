"""Without an if: all that a place without tokens would move is masked, its tile transposed."""


def step(
    p_q, p_k, p_v, p_log, p_states, p_slots, p_begin, p_fresh, p_o,
    K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    n, h, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    t, end = tl.load(p_begin + n), tl.load(p_begin + n + 1)
    some, old = t < end, tl.load(p_fresh + n) == 0
    columns = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    tile = columns[:, None] + tl.arange(0, K)[None, :] * V
    p_tile = p_states + (tl.load(p_slots + n) * heads + h) * K * V + tile
    every = tl.full([BLOCK, K], 1, tl.int1)
    S = tl.load(p_tile, mask=every & some & old, other=0.0)
    fade = tl.math.exp2(tl.load(p_log + h) * 1.4426950408889634)
    while t < end:
        at = t * heads + h
        value = tl.load(p_v + at * V + columns)
        S = S * fade + value[:, None] * tl.load(p_k + at * K + tl.arange(0, K))[None, :]
        query = tl.load(p_q + at * K + tl.arange(0, K))
        tl.store(p_o + at * V + columns, tl.sum(S * query[None, :], axis=1))
        t += 1
    tl.store(p_tile, S, mask=every & some)
