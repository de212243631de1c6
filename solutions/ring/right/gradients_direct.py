"""Each block straight from its owner to who sees it, each gradient straight back; head by head."""


def gradients(q, k, v, do, lse, delta, positions, window, rank, wire):
    n = len(positions)
    G, c, K = k.shape
    each = q.shape[0] // G

    def mask(r, s):
        return [
            [j <= i and (window is None or i - j < window) for j in positions[s]]
            for i in positions[r]
        ]

    def seen(r, s):
        return any(map(any, mask(r, s)))

    dq = torch.zeros_like(q)

    def part(s, keys, values):
        out = torch.zeros(2, *keys.shape, dtype=torch.float64)
        open_ = torch.tensor(mask(rank, s))
        for h in range(len(q)):
            g = h // each
            scores = torch.einsum("ik,jk->ij", q[h], keys[g]) / K**0.5
            p = torch.where(open_, torch.exp(scores - lse[h][:, None]), 0.0)
            ds = p * (torch.einsum("ik,jk->ij", do[h], values[g]) - delta[h][:, None]) / K**0.5
            dq[h] += torch.einsum("ij,jk->ik", ds, keys[g])
            out[0, g] += torch.einsum("ij,ik->jk", ds, q[h])
            out[1, g] += torch.einsum("ij,ik->jk", p, do[h])
        return out

    readers = [r for r in range(n) if r != rank and seen(r, rank)]
    owners = [(rank - s) % n for s in range(1, n) if seen(rank, (rank - s) % n)]
    for r in readers:
        wire.isend(k, r, 1)
        wire.isend(v, r, 2)

    def posted(s):
        shape = [G, len(positions[s]), K]
        return wire.irecv(shape, s, 1), wire.irecv(shape, s, 2)

    waiting = posted(owners[0]) if owners else None
    for at, s in enumerate(owners):
        keys, values = (message.wait() for message in waiting)
        waiting = posted(owners[at + 1]) if at + 1 < len(owners) else None
        wire.isend(part(s, keys, values), s, 3)
    back = [wire.irecv((2, G, c, K), r, 3) for r in readers]
    own = part(rank, k, v)
    while back:
        own += back.pop().wait()
    return dq, own[0], own[1]
