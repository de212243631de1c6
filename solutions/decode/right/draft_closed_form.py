"""The largest batch from the two straight lines that a pass is the higher of."""


def draft(node, model, drafts, context, limit):
    memory, bandwidth, rate = node["memory"], node["bandwidth"], node["rate"]
    found = []
    for t in [2**i for i in range(20) if 2**i <= node["gpus"]]:
        for one in [None, *drafts]:
            for g in range(1, len(one["right"]) + 1) if one else [0]:
                made, likely = 1.0, 1.0
                for i in range(g):
                    likely *= one["right"][i]
                    made += likely
                passes = [(model, g + 1, 1)] + ([(one, 1, g)] if one else [])
                weights = sum(2 * of["params"] for of, _, _ in passes)
                cache = sum(context * of["cache"] for of, _, _ in passes)
                wait = sum(n * 2 * of["layers"] * node["wait"] for of, _, n in passes)

                def time(B, t=t, passes=passes, wait=wait):
                    total = wait if t > 1 else 0.0
                    for of, T, n in passes:
                        weights = max(1 / bandwidth, B * T / rate) * 2 * of["params"]
                        total += n * (weights + B * context * of["cache"] / bandwidth) / t
                    return total

                B = int((0.9 * t * memory - weights) // cache)
                low = 0
                for step in [2**i for i in range(40, -1, -1)]:
                    if low + step <= B and time(low + step) <= made * limit:
                        low += step
                if low:
                    name = one["name"] if one else None
                    found.append((t, name, g, low, low * made / time(low) / t))
    return max(found, key=lambda each: each[-1], default=None)
