"""Loads what lies in the slot of a fresh sequence, and multiplies it by 0."""

KIND = "edge of the range"
FAILS = ["test_step_places", "test_step_moves", "test_step_any"]


def step(
    p_q, p_k, p_v, p_log, p_states, p_slots, p_begin, p_fresh, p_o,
    K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    n, h, H = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    o_k, o_v = tl.arange(0, K), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    first, end = tl.load(p_begin + n), tl.load(p_begin + n + 1)
    if first < end:
        decay = tl.exp(tl.load(p_log + h))
        slot = tl.load(p_slots + n).to(tl.int64)
        o_state = ((slot * H + h) * K + o_k[:, None]) * V + o_v[None, :]
        b_S = tl.load(p_states + o_state) * (1 - tl.load(p_fresh + n))
        for t in range(first, end):
            row = t * H + h
            b_k, b_v = tl.load(p_k + row * K + o_k), tl.load(p_v + row * V + o_v)
            b_S = decay * b_S + b_k[:, None] * b_v[None, :]
            b_q = tl.load(p_q + row * K + o_k)
            tl.store(p_o + row * V + o_v, tl.sum(b_q[:, None] * b_S, 0))
        tl.store(p_states + o_state, b_S)
