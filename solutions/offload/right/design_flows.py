"""A function for the bytes, one for the flows, and the smallest of a list."""


def design(node, model, batch):
    d, p, S = node["gpus"], model["params"], model["tokens"]
    P = p * model["layers"]
    ring = 2 * P * (d - 1) / d / node["inside"]

    def places(weights, eighths, states, again, micro):
        off = P * (1 - eighths / 8)
        layer = model["kept"] * micro * S
        stay = 2 * model["width"] * micro * S if again else layer
        gpu = 4 * p + 16 * (P - off) / d + stay * model["layers"] + layer * again
        gpu += {"whole": 2 * P, "shard": 2 * P / d + 4 * p, "host": 4 * p}[weights]
        ram = off * (4 if states == "disk" else 16) + (2 * P if weights == "host" else 0)
        return gpu, ram, off * 12 if states == "disk" else 0

    def seconds(weights, eighths, states, again, micro):
        off = P * (1 - eighths / 8)
        flow = 2 * P * micro * S / node["rate"]
        link = 2 * off / d / node["link"]
        there = [0.0 if weights == "whole" else ring]
        if weights == "host":
            there.append(2 * P / d / node["link"])
        passes = max(flow, *there)
        passes += max(flow * (2 + again), there[0] + ring, *there, link, 12 * off / node["touch"])
        after = 28 * off / node["touch"]
        if states == "disk":
            after = max(after, 24 * off / node["drive"])
        if weights != "host":
            after += link
        if weights == "whole":
            after += ring
        return batch // (d * micro) * passes + after

    found = []
    for micro in [x for x in range(1, batch // d + 1) if batch // d % x == 0]:
        for weights in ("host", "shard", "whole"):
            for again in (False, True):
                for eighths in range(9):
                    for states in ("host", "disk")[: 1 if eighths == 8 else 2]:
                        choice = weights, eighths, states, again, micro
                        gpu, ram, disk = places(*choice)
                        fits = gpu <= 0.9 * node["memory"] and ram <= 0.9 * node["ram"]
                        if fits and disk <= node["disk"]:
                            found.append((*choice, gpu, seconds(*choice)))
    return min(found, key=lambda one: one[-1], default=None)
