"""Takes as many GPUs as are best without a draft, and looks for a draft then."""

KIND = "gives up"
FAILS = ["test_draft_real", "test_draft_any"]


def draft(node, model, drafts, context, limit):
    plain = _best(node, model, [], context, limit)
    return _best(node, model, drafts, context, limit, plain and plain[0])


def _best(
    node: dict, model: dict, drafts: list[dict], context: int, limit: float, first=None
) -> tuple[int, str | None, int, int, float] | None:
    best = None
    t = 1
    while t <= node["gpus"]:

        def seconds(of, B, T, t=t):
            weights = max(
                2 * of["params"] / (t * node["bandwidth"]),
                2 * of["params"] * B * T / (t * node["rate"]),
            )
            caches = B * context * of["cache"] / (t * node["bandwidth"])
            return weights + caches + (2 * of["layers"] * node["wait"] if t > 1 else 0.0)

        for one in (None, *drafts) if first is None or t == first else ():
            both = [model] + ([one] if one else [])
            left = 9 * t * node["memory"] / 10 - sum(2 * of["params"] for of in both)
            room = int(left // (context * sum(of["cache"] for of in both)))
            chance, made = 1.0, 1.0
            for g in range(1, len(one["right"]) + 1) if one else (0,):
                if one:
                    chance *= one["right"][g - 1]
                    made += chance

                def step(B, one=one, g=g):
                    return seconds(model, B, g + 1) + (g * seconds(one, B, 1) if one else 0.0)

                low, high = 0, max(0, room)  # a step of more sequences takes longer
                while low < high:
                    middle = (low + high + 1) // 2
                    low, high = (
                        (middle, high) if step(middle) <= limit * made else (low, middle - 1)
                    )
                rate = low * made / step(low) / t if low else 0.0
                if low and (best is None or rate > best[-1]):
                    best = t, one and one["name"], g, low, rate
        t *= 2
    return best
