"""Reads the faded state and the token's own write apart, with a helper that finds rows."""


def row(t, h, H, width):
    return (t * H + h) * width


def step(
    p_q, p_k, p_v, p_log, p_states, p_slots, p_begin, p_fresh, p_o,
    K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    n, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    H = tl.num_programs(1)
    o_k, o_v = tl.arange(0, K), b * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(p_begin + n)
    tokens = tl.load(p_begin + n + 1) - begin
    if tokens == 0:
        return
    p_mine = p_states + row(tl.load(p_slots + n), h, H, K * V) + o_k[:, None] * V + o_v[None, :]
    if tl.load(p_fresh + n) == 1:
        b_S = tl.zeros([K, BLOCK], tl.float32)
    else:
        b_S = tl.load(p_mine)
    b_log = tl.load(p_log + h)
    for i in range(tokens):
        b_q = tl.load(p_q + row(begin + i, h, H, K) + o_k)
        b_k = tl.load(p_k + row(begin + i, h, H, K) + o_k)
        b_v = tl.load(p_v + row(begin + i, h, H, V) + o_v)
        b_S *= tl.exp(b_log)
        b_o = tl.sum(b_q[:, None] * b_S, 0) + tl.sum(b_q * b_k, 0) * b_v
        tl.store(p_o + row(begin + i, h, H, V) + o_v, b_o)
        b_S += b_k[:, None] * b_v[None, :]
    tl.store(p_mine, b_S)
