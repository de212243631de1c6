"""Reads the state before the token is in it."""

KIND = "wrong order"
FAILS = ["test_step", "test_step_places", "test_step_moves", "test_step_any"]


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
        m_state = (o_state >= 0) & (tl.load(p_fresh + n) == 0)
        b_S = tl.load(p_states + o_state, mask=m_state, other=0.0)
        for t in range(first, end):
            row = t * H + h
            b_k, b_v = tl.load(p_k + row * K + o_k), tl.load(p_v + row * V + o_v)
            b_q = tl.load(p_q + row * K + o_k)
            tl.store(p_o + row * V + o_v, tl.sum(b_q[:, None] * b_S, 0))
            b_S = decay * b_S + b_k[:, None] * b_v[None, :]
        tl.store(p_states + o_state, b_S)
