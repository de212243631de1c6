"""A function for the time of a layout and one for its memory, in exact numbers until the end."""

from fractions import Fraction


def layout(cluster: dict, model: dict, batch: int) -> tuple | None:
    c, m = ({key: Fraction(x) for key, x in given.items()} for given in (cluster, model))
    tokens = m["tokens"]

    def dealt(L, p, layer, head):
        if p == 1:
            return L, L
        best = None
        for last in range(L, -1, -1):
            first = (L - last + p - 2) // (p - 1)
            takes = max(first * layer, last * layer + head)
            if best is None or takes <= best[0]:
                best = takes, first, last
        return best[1:]

    def times(t, d):
        per_parameter = 6 * tokens / (t * c["rate"])
        sent = 8 * Fraction(t - 1, t) * 2 * tokens * m["width"]
        return per_parameter * m["layer"] + sent / c["inside"], per_parameter * m["head"]

    best = None
    for t in range(1, int(c["node"]) + 1):
        for p in range(1, model["layers"] + 1):
            d, rest = divmod(cluster["gpus"], t * p)
            if rest or cluster["node"] % t or model["heads"] % t or batch % d:
                continue
            count = batch // d
            layer, head = times(t, d)
            first, last = dealt(model["layers"], p, layer, head)
            slowest = max(first * layer, last * layer + head)
            ranks = [(last * m["layer"] + m["head"], last, 4 * tokens * m["words"])]
            if p > 1:
                ranks.insert(0, (first * m["layer"], first, 0))
            most = max(rank[0] for rank in ranks) / t
            wire = c["inside"] if t * d <= c["node"] else c["outside"]
            half = 2 * most * Fraction(d - 1, d) / wire
            crossing = 2 * tokens * m["width"] / t / c["outside"]
            if cluster["gpus"] <= cluster["node"]:
                crossing = 2 * tokens * m["width"] / t / c["inside"]
            vs = [v for v in range(1, model["layers"] // p + 1) if count % p == 0]
            for v in {1, *vs} if p > 1 else {1}:
                flying = [Fraction(p * v + p - 1, v), Fraction(p * v - p + 1, v)]
                flying = flying if v > 1 else [min(p, count), 1]
                for zero in (1, 3):
                    each = max(slowest, 3 * half) if zero == 3 else slowest
                    seconds = count * each + Fraction(p - 1, v) * each
                    seconds += max(0, 2 * half - slowest) if zero == 1 else 0
                    seconds += count * 2 * v * crossing if p > 1 else 0
                    state = 6 + Fraction(12, d) if zero == 1 else Fraction(18, d)
                    nbytes = max(
                        own * state + some * layers * m["kept"] + scores
                        for (own, layers, scores), some in zip(ranks, flying[-len(ranks) :])
                    )
                    nbytes = (nbytes + (zero == 3) * 2 * max(m["layer"], m["head"])) / t
                    if nbytes * 10 <= 9 * c["memory"] and (best is None or seconds < best[0]):
                        best = seconds, (t, p, d, v, zero, float(nbytes), float(seconds))
    return best and best[1]
