"""One loop over all tokens, with the state transposed; what is settled is kept beside it."""


def replay(
    p_S, p_q, p_k, p_v, p_g, p_beta, p_settled, p_count, p_o, N, K, V,
    TILE_K: tl.constexpr, TILE_V: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(axis=0)
    rows, columns = tl.arange(0, TILE_V) + tl.program_id(axis=1) * TILE_V, tl.arange(0, TILE_K)
    inside = (rows < V)[:, None] & (columns < K)[None, :]
    where = p_S + (b * K + columns[None, :]) * V + rows[:, None]
    b_S = tl.load(where, mask=inside, other=0)
    settled, count = tl.load(p_settled + b), tl.load(p_count + b)
    b_kept = b_S
    t = 0
    while t < count:
        at = b * N + t
        b_k = tl.load(p_k + at * K + columns, mask=columns < K, other=0)[None, :]
        b_v = tl.load(p_v + at * V + rows, mask=rows < V, other=0)
        b_S *= tl.exp(tl.load(p_g + at))
        b_u = (b_v - tl.sum(b_S * b_k, axis=1)) * tl.load(p_beta + at)
        b_S += b_u[:, None] * b_k
        draft = t >= settled
        b_kept = tl.where(draft, b_kept, b_S)
        b_q = tl.load(p_q + at * K + columns, mask=(columns < K) & draft, other=0)
        b_o = tl.sum(b_S * b_q[None, :], axis=1)
        tl.store(p_o + at * V + rows, b_o, mask=(rows < V) & draft)
        t += 1
    if settled > 0:
        tl.store(where, b_kept, mask=inside)
