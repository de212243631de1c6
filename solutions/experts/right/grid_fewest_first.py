"""Many stages first, each rank's chance to be missed as a product, and layer by layer."""


def grid(node, model, nodes, batch):
    gpus, E = node["gpus"], model["experts"]
    n = nodes * gpus
    found = {}
    stages = [p for p in range(model["layers"], 0, -1) if p & (p - 1) == 0 and n % p == 0]
    for p in stages:
        d = n // p
        if batch % d or (batch // d) % model["tokens"] or batch // d == 0:
            continue
        m = batch // d // model["tokens"]
        for e in [e for e in range(1, E + 1) if E % e == 0 and d % e == 0]:
            kept = took = 0
            for _ in range((model["layers"] - 1) // p + 1):
                own = E // e * 3 * model["width"] * model["hidden"]
                kept += own * 2 + own * 2 + own * 12 / (d // e)
                kept += model["other"] * 2 + model["other"] * 2 + model["other"] * 12 / d
                kept += min(m, p) * model["tokens"] * model["kept"]
                each = 3 * model["width"] * model["hidden"] * model["k"] + model["other"]
                took += 6 * each * model["tokens"] / node["rate"]
                parts = max(e // gpus, 1) if e > gpus else e
                none = 1
                for i in range(model["k"]):
                    none *= max(E - E // parts - i, 0) / (E - i)
                row = 2 * model["width"] / (node["outside"] if e > gpus else node["inside"])
                took += 4 * model["tokens"] * (parts - 1) * (1 - none) * row
            if kept <= 9 * node["memory"] / 10:
                found[took * (m + p - 1)] = e, p, kept
    if found:
        fastest = min(found)
        return *found[fastest], fastest
