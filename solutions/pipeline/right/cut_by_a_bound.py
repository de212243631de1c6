"""Tries each time that a rank can take as a bound: are there places for all layers?"""


def cut(cluster, model, batch):
    from bisect import bisect_left

    nodes, L, T = cluster["nodes"], model["layers"], model["tokens"]
    fits = [p for p in range(1, L + 1) if nodes % p == 0 and batch % (nodes // p) == 0]
    found = []
    for p in fits:
        m = batch * p // nodes
        table = []  # of each rank, by layers from 1: (seconds, recomputed)
        for s in range(p):
            row, r = [], 0
            for n in range(1, L + 1):
                while r <= n and not _fits(cluster, model, p, s, m, n, r):
                    r += 1
                if r > n:
                    break
                head = 3 * model["table"] if s == p - 1 else 0
                own = 2 * T * ((3 * n + r) * model["layer"] + head) / cluster["rate"]
                row.append((own, r))
            table.append(row)

        def places(most, table=table):
            return [bisect_left(row, (most, L + 1)) for row in table]

        for most in sorted({own for row in table for own, _ in row}):
            layers = places(most)
            if min(layers) and sum(layers) >= L:
                s = 0
                while sum(layers) > L:
                    take = min(layers[s] - 1, sum(layers) - L)
                    layers[s] -= take
                    s += 1
                again = [row[n - 1][1] for row, n in zip(table, layers, strict=True)]
                found.append(((m + p - 1) * most, p, layers, again))
                break
    if not found:
        return None
    seconds, *rest = min(found)
    return (*rest, seconds)


def _fits(cluster, model, p, s, m, n, r):
    entry = 2 * model["tokens"] * model["width"]
    tables = int(s == 0) + int(s + 1 == p)
    nbytes = (n * model["layer"] + tables * model["table"]) * (6 + 12 * p / cluster["nodes"])
    nbytes += min(m, p - s) * (n * model["kept"] - r * (model["kept"] - entry))
    nbytes += model["kept"] - entry if r else 0
    nbytes += 6 * model["tokens"] * model["words"] if s + 1 == p else 0
    return nbytes <= 0.9 * cluster["memory"]
