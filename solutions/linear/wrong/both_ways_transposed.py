"""Transposes the mask for the way back: with the gates of the keys, not of the queries."""

KIND = "off by one"
FAILS = ["test_both_ways", "test_both_ways_bytes", "test_both_ways_rounds", "test_both_ways_any"]


def both_ways(q, k, v, g, comm):
    rank, n = comm.rank, comm.n
    b = torch.cat([g.new_zeros(1), g.cumsum(0)])
    fade = (b[1:, None] - b[1:]).tril().exp().tril()
    o = (q @ k.T * (fade + fade.T.triu(1))) @ v
    ways = [(rank - 1, rank + 1, False), (rank + 1, rank - 1, True)]
    for source, to, back in ways if rank <= n - 1 - rank else ways[::-1]:
        S = comm.recv(source) if 0 <= source < n else q.new_zeros(q.shape[1], v.shape[1])
        before, after = b[1:].exp()[:, None], (b[-1] - b[1:]).exp()[:, None]
        before, after = (after, before) if back else (before, after)
        if 0 <= to < n:
            comm.send(b[-1].exp() * S + (after * k).T @ v, to)
        o = o + before * (q @ S)
    return o
