"""Finds the microbatch and the stage of a rank's n-th step by arithmetic."""


def flexible(p, m, v):
    count = m // p or 1
    small, larger = divmod(m, count)  # `larger` groups of small + 1 come first

    def step(n):
        edge = larger * (small + 1) * v
        if n < edge:
            group, inside = divmod(n, (small + 1) * v)
            chunk, i = divmod(inside, small + 1)
            return group * (small + 1) + i, chunk
        group, inside = divmod(n - edge, small * v)
        chunk, i = divmod(inside, small)
        return larger * (small + 1) + group * small + i, chunk

    def row(rank):
        ahead = (v - 1) * (small + (larger > 0)) + min(m, p - rank) - 1
        for n in range(m * v + ahead):
            if n < m * v:
                i, chunk = step(n)
                yield "F", i, chunk * p + rank
            if n >= ahead:
                i, chunk = step(n - ahead)
                yield "BW", i, (v - 1 - chunk) * p + rank

    return [list(row(rank)) for rank in range(p)]
