"""One query at a time, and sums in place of products of matrices."""


def columns(
    p_q, p_k, p_v, p_do, p_lse, p_delta, p_starts, p_queries, p_dk, p_dv,
    T, H, K, scale,
    BLOCK: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    c, g = tl.program_id(0), tl.program_id(1)
    shared = H // tl.num_programs(1)
    j = c * BLOCK + tl.arange(0, BLOCK)
    x = tl.arange(0, WIDTH)
    own = j[:, None] * (H // shared * K) + g * K + x[None, :]
    m = (j[:, None] < T) & (x[None, :] < K)
    k = tl.load(p_k + own, mask=m, other=0.0)
    v = tl.load(p_v + own, mask=m, other=0.0)
    dk = tl.zeros([BLOCK, WIDTH], tl.float32)
    dv = tl.zeros([BLOCK, WIDTH], tl.float32)
    first = p_starts + g * tl.num_programs(0) + c
    for i in range(tl.load(first), tl.load(first + 1)):
        t = tl.load(p_queries + i)
        if t >= c * BLOCK:
            for r in range(shared):
                row = t * H + g * shared + r
                q = tl.load(p_q + row * K + x, mask=x < K, other=0.0)
                do = tl.load(p_do + row * K + x, mask=x < K, other=0.0)
                s = tl.sum(k * q[None, :], 1) * scale - tl.load(p_lse + row)
                p = tl.where(j <= t, tl.exp(s), 0.0)
                ds = p * (tl.sum(v * do[None, :], 1) - tl.load(p_delta + row))
                dk += ds[:, None] * q[None, :]
                dv += p[:, None] * do[None, :]
    tl.store(p_dk + own, dk * scale, mask=m)
    tl.store(p_dv + own, dv, mask=m)
