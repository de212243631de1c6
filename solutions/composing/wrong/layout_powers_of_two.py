"""Tensor ranks by powers of two alone."""

KIND = "special case"
FAILS = ["test_layout_time", "test_layout_real", "test_layout_any"]


def layout(cluster: dict, model: dict, batch: int) -> tuple | None:
    n, s, L, D = cluster["gpus"], model["tokens"], model["layers"], model["width"]
    best = None
    for t in (1, 2, 4, 8, 16, 32, 64):
        if cluster["node"] % t or model["heads"] % t or n % t:
            continue
        sends = 8 * (t - 1) / t * 2 * s * D / cluster["inside"]
        layer = 6 * s * model["layer"] / t / cluster["rate"] + sends
        head = 6 * s * model["head"] / t / cluster["rate"]
        for p in range(1, L + 1):
            d = n // (t * p)
            if n % (t * p) or batch % d:
                continue
            m = batch // d
            ways = [(L, L)] if p == 1 else [(k, -(-(L - k) // (p - 1))) for k in range(L + 1)]
            slowest, last, first = min(
                (max(k * layer + head, others * layer), k, others) for k, others in ways
            )
            ends = [  # parameters, layers, bytes of scores
                (first * model["layer"], first, 0),
                (last * model["layer"] + model["head"], last, 4 * s * model["words"]),
            ]
            most = max(own for own, *_ in ends) / t
            across = cluster["inside" if t * d <= cluster["node"] else "outside"]
            sharded = 2 * most * (d - 1) / d / across
            hop = 2 * s * D / t / cluster["inside" if n <= cluster["node"] else "outside"]
            for v in range(1, (L // p if p > 1 else 1) + 1):
                if v > 1 and m % p:
                    continue
                flying = (min(p, m), 1) if v == 1 else ((p * v + p - 1) / v, ((v - 1) * p + 1) / v)
                for zero in (1, 3):
                    each = max(slowest, 3 * sharded) if zero == 3 else slowest
                    seconds = (m + (p - 1) / v) * each + (p > 1) * m * 2 * v * hop
                    if zero == 1:
                        seconds += max(0, 2 * sharded - slowest)
                    state = 18 / d if zero == 3 else 6 + 12 / d
                    gathered = 2 * max(model["layer"], model["head"]) if zero == 3 else 0
                    nbytes = max(
                        (state * own + gathered + some * layers * model["kept"] + scores) / t
                        for (own, layers, scores), some in zip(ends, flying, strict=True)
                    )
                    fits = 10 * nbytes <= 9 * cluster["memory"]
                    if fits and (best is None or seconds < best[-1]):
                        best = t, p, d, v, zero, nbytes, seconds
    return best
