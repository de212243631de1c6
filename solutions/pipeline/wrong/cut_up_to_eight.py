"""Looks at pipelines of up to eight ranks."""

KIND = "special case"
FAILS = [
    "test_cut_real",
    "test_cut_any",
]


def cut(cluster, model, batch):
    nodes, L, T = cluster["nodes"], model["layers"], model["tokens"]
    entry = 2 * T * model["width"]
    best = None
    for p in range(1, min(nodes, L, 8) + 1):
        d = nodes // p
        if nodes % p or batch % d:
            continue
        m = batch // d

        def recomputed(s, n, p=p, d=d, m=m):
            params = n * model["layer"] + ((s == 0) + (s == p - 1)) * model["table"]
            fixed = (6 + 12 / d) * params + (s == p - 1) * 6 * T * model["words"]
            for r in range(n + 1):
                kept = min(m, p - s) * ((n - r) * model["kept"] + r * entry)
                kept += (r > 0) * (model["kept"] - entry)
                if 10 * (fixed + kept) <= 9 * cluster["memory"]:
                    return r
            return float("inf")

        def seconds(s, n, p=p, recomputed=recomputed):
            flops = (6 * n + 2 * recomputed(s, n)) * model["layer"]
            return T * (flops + (s == p - 1) * 6 * model["table"]) / cluster["rate"]

        layers = [1] * p
        for _ in range(L - p):
            layers[min(range(p), key=lambda s: seconds(s, layers[s] + 1))] += 1
        slowest = max(seconds(s, n) for s, n in enumerate(layers))
        if slowest < float("inf") and (best is None or (m + p - 1) * slowest < best[-1]):
            again = [recomputed(s, n) for s, n in enumerate(layers)]
            best = p, layers, again, (m + p - 1) * slowest
    return best
