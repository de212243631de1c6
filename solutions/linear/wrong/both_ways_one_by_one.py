"""Every rank does the way there before the way back, so the last begins it when all is done."""

KIND = "too much time"
FAILS = ["test_both_ways_rounds", "test_both_ways_any"]


def both_ways(q, k, v, g, comm):
    rank, n = comm.rank, comm.n
    o = -(q * k).sum(1, keepdim=True) * v
    ways = [(rank - 1, rank + 1, False), (rank + 1, rank - 1, True)]
    for source, to, back in ways:
        Q, K, V, g_r = (x.flip(0) if back else x for x in (q, k, v, g))
        b = torch.cat([g_r.new_zeros(1), g_r.cumsum(0)])
        fade = (b[1:, None] - b[1:]).tril().exp().tril()
        S = comm.recv(source) if 0 <= source < n else q.new_zeros(q.shape[1], v.shape[1])
        if 0 <= to < n:
            comm.send(b[-1].exp() * S + ((b[-1] - b[1:]).exp()[:, None] * K).T @ V, to)
        way = b[1:, None].exp() * (Q @ S) + (Q @ K.T * fade) @ V
        o = o + (way.flip(0) if back else way)
    return o
