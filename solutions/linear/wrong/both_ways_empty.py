"""A rank without tokens hands on its own state, which is zeros."""

KIND = "edge of the range"
FAILS = ["test_both_ways", "test_both_ways_bytes", "test_both_ways_rounds", "test_both_ways_any"]


def both_ways(q, k, v, g, comm):
    rank, n = comm.rank, comm.n
    o = -(q * k).sum(1, keepdim=True) * v
    ways = [(rank - 1, rank + 1, False), (rank + 1, rank - 1, True)]
    if rank > n - 1 - rank:  # what comes from the right is here earlier
        ways.reverse()
    for source, to, back in ways:
        Q, K, V, g_r = (x.flip(0) if back else x for x in (q, k, v, g))
        b = torch.cat([g_r.new_zeros(1), g_r.cumsum(0)])
        fade = (b[1:, None] - b[1:]).tril().exp().tril()
        S = q.new_zeros(q.shape[1], v.shape[1])
        if 0 <= source < n:
            S = comm.recv(source) if len(q) else comm.recv(source) * 0
        if 0 <= to < n:
            comm.send(b[-1].exp() * S + ((b[-1] - b[1:]).exp()[:, None] * K).T @ V, to)
        way = b[1:, None].exp() * (Q @ S) + (Q @ K.T * fade) @ V
        o = o + (way.flip(0) if back else way)
    return o
