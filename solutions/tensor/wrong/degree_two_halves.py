"""Gathers and scatters around attention and around the MLP, as where each has its norm."""

KIND = "wrong formula"
FAILS = ["test_degree_time", "test_degree_real", "test_degree_any"]


def degree(node: dict, model: dict, nodes: int) -> tuple[int, str, int, float] | None:
    D, F, K, T = (model[key] for key in ("width", "hidden", "key", "tokens"))
    H, G, L = (model[key] for key in ("heads", "groups", "layers"))
    gpus = node["gpus"]
    best = None
    for t in [*range(1, gpus), *range(gpus, gpus * nodes + 1, gpus)]:
        if H % t or F % t or T % t or (G % t and t % G):
            continue
        q, kv, hidden = H // t * K, max(1, G // t) * K, F // t  # columns on a rank
        matrices = D * (2 * q + 2 * kv + 3 * hidden)
        inside, own = 2 * T * (2 * q + 2 * kv + 3 * hidden), 2 * T // t * D  # bytes
        forward = (2 * T * matrices + 2 * T * T * q) / node["rate"]
        across = min(node["inside"], gpus * node["outside"])
        link = node["inside"] if t <= gpus else across
        sending = 2 * 2 * T * D * (t - 1) / t / link
        for how, layer, once, passes, calls in (
            ("all", own + own * t + inside, 0, 3, 4),
            ("regather", own + own + inside, 0, 3, 5),
            ("recompute", own, own * t + inside, 4, 5),
        ):
            kept = L * (matrices + D) * model["state"] + model["flying"] * L * layer + once
            seconds = L * (passes * forward + calls * sending)
            if 10 * kept <= 9 * node["memory"] and (best is None or t * seconds < best[0]):
                best = t * seconds, (t, how, kept, seconds)
    return best and best[1]
