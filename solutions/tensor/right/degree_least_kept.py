"""Bytes and seconds in two helpers, and the least of all that fit."""


def degree(node, model, nodes):
    D, T, L = model["width"], model["tokens"], model["layers"]

    def degrees():
        yield from range(1, node["gpus"] + 1)
        yield from (node["gpus"] * i for i in range(2, nodes + 1))

    def choices(t):
        heads, groups = model["heads"] // t, max(1, model["groups"] // t)
        hidden = model["hidden"] // t
        weights = D * (2 * (heads + groups) * model["key"] + 3 * hidden)
        numbers = T * (2 * (heads + groups) * model["key"] + 3 * hidden)
        states = model["state"] * L * (weights + D)
        layers = model["flying"] * L
        yield "all", states + 2 * layers * (T // t * D + T * D + numbers), 3, 4
        yield "regather", states + 2 * layers * (2 * (T // t) * D + numbers), 3, 5
        more = 2 * (T * D + numbers)
        yield "recompute", states + 2 * layers * (T // t) * D + more, 4, 5

    def seconds(t, passes, calls):
        heads, groups = model["heads"] // t, max(1, model["groups"] // t)
        weights = D * (2 * (heads + groups) * model["key"] + 3 * model["hidden"] // t)
        flops = 2 * T * (weights + T * heads * model["key"])
        bandwidth = node["inside"]
        if t > node["gpus"] and node["gpus"] * node["outside"] < bandwidth:
            bandwidth = node["gpus"] * node["outside"]
        return L * (passes * flops / node["rate"] + calls * 2 * T * D * (1 - 1 / t) / bandwidth)

    found = []
    for t in degrees():
        if any(model[name] % t for name in ("heads", "hidden", "tokens")):
            continue
        if model["groups"] % t and t % model["groups"]:
            continue
        for how, nbytes, passes, calls in choices(t):
            if nbytes <= 0.9 * node["memory"]:
                found.append((t, how, nbytes, seconds(t, passes, calls)))
    return min(found, key=lambda one: one[0] * one[3], default=None)
