"""Takes for each number of stages the smallest groups that fit."""

KIND = "gives up"
FAILS = ["test_grid_real", "test_grid_any"]


def grid(node: dict, model: dict, nodes: int, batch: int) -> tuple[int, int, int, float] | None:
    L, E, k, tokens = (model[key] for key in ("layers", "experts", "k", "tokens"))
    expert, n = 3 * model["width"] * model["hidden"], nodes * node["gpus"]

    def needed(groups):  # other groups of experts that a token needs, on average
        missed = 1.0
        for i in range(k):
            missed *= max(0, E - E // groups - i) / (E - i)
        return (groups - 1) * (1 - missed)

    found, p = [], 1
    while p <= min(L, n):
        d, layers = n // p, -(-L // p)
        m, rest = divmod(batch, d * tokens)
        e = 1
        while not rest and m and e <= min(E, d):
            inside = e <= node["gpus"]
            kept = layers * E // e * expert * (4 + 12 * e / d)
            kept += layers * model["other"] * (4 + 12 / d)
            kept += layers * min(m, p) * tokens * model["kept"]
            flops = 6 * tokens * (k * expert + model["other"])
            rows = 2 * 2 * tokens * needed(e if inside else e // node["gpus"])
            sending = rows * 2 * model["width"] / node["inside" if inside else "outside"]
            took = (m + p - 1) * layers * (flops / node["rate"] + sending)
            if 10 * kept <= 9 * node["memory"]:
                found.append((took, e, p, kept))
                break
            e *= 2
        p *= 2
    if not found:
        return None
    took, e, p, kept = min(found)
    return e, p, kept, took
