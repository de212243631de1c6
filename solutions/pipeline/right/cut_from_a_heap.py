"""Gives the next layer to the rank that stays fastest, from a heap; ends when one is stuck."""


def cut(cluster, model, batch):
    import heapq
    from math import inf

    most, T = 0.9 * cluster["memory"], model["tokens"]
    entry = 2 * T * model["width"]
    found = (None, inf)
    p = 0
    while p < min(cluster["nodes"], model["layers"]):
        p += 1
        d, rest = divmod(cluster["nodes"], p)
        if rest or batch % d:
            continue
        m = batch // d

        def cost(s, n, p=p, d=d, m=m):
            flying = min(m, p - s)
            nbytes = n * model["layer"] * (6 + 12 / d) + flying * n * model["kept"]
            if s == 0:
                nbytes += model["table"] * (6 + 12 / d)
            if s == p - 1:
                nbytes += model["table"] * (6 + 12 / d) + 6 * T * model["words"]
            head = 6 * model["table"] if s == p - 1 else 0
            for r in range(n + 1):
                less = model["kept"] - entry
                if nbytes + (less if r else 0) - flying * r * less <= most:
                    return (T * (6 * n * model["layer"] + 2 * r * model["layer"] + head), s, n, r)
            return (inf, s, n, 0)

        heap = [cost(s, 2) for s in range(p)]
        heapq.heapify(heap)
        cuts = [cost(s, 1) for s in range(p)]
        for _ in range(model["layers"] - p):
            one = heap[0]
            cuts[one[1]] = one
            heapq.heapreplace(heap, cost(one[1], one[2] + 1))
        flops = max(cuts)[0] * (m + p - 1)
        if flops < found[1]:
            found = (p, [one[2] for one in cuts], [one[3] for one in cuts]), flops
    return found[0] and (*found[0], found[1] / cluster["rate"])
