"""Where a head lies in a file, by arithmetic, and no list of what files have."""


def reads(H, G, K, t, u, rank):
    group = H // G

    def first(n, r):
        return r * (H // n) + min(r, H % n)

    def owner(n, h):
        return next(r for r in range(n) if first(n, r + 1) > h)

    def place(h, kind):  # of a query head, or of the kv head that it is the first to use
        file = owner(t, h)
        begin, end = first(t, file), first(t, file + 1)
        kv = (end - 1) // group - begin // group + 1
        at = h - begin if kind == 0 else end - begin + (kind - 1) * kv + h // group - begin // group
        return file, at * K, at * K + K

    mine = range(first(u, rank), first(u, rank + 1))
    used = range(mine[0] // group, mine[-1] // group + 1)
    out = [place(h, 0) for h in mine]
    out += [place(g * group, kind) for kind in (1, 2) for g in used]
    short = out[:1]
    for file, begin, end in out[1:]:
        if (file, begin) == (short[-1][0], short[-1][2]):
            short[-1] = (file, short[-1][1], end)
        else:
            short.append((file, begin, end))
    return short
