"""All pairs of degrees, binomial coefficients, and the best kept on the way."""


def grid(node, model, nodes, batch):
    import math

    L, D, F, E, k = (model[x] for x in ("layers", "width", "hidden", "experts", "k"))
    n, best = nodes * node["gpus"], None
    for i in range(n.bit_length()):
        for j in range(n.bit_length()):
            p, e = 1 << i, 1 << j
            d = n / p
            if p > L or E % e or d % e:
                continue
            m = batch / d / model["tokens"]
            if m < 1 or m != int(m):
                continue
            slots = math.ceil(L / p)
            experts = slots * E / e * 3 * D * F
            others = slots * model["other"]
            memory = 4 * (experts + others) + 12 * experts / (d / e) + 12 * others / d
            memory += min(m, p) * slots * model["tokens"] * model["kept"]
            if memory > 0.9 * node["memory"]:
                continue
            groups = e if e <= node["gpus"] else e // node["gpus"]
            link = node["inside"] if e <= node["gpus"] else node["outside"]
            hit = 1 - math.comb(E - E // groups, k) / math.comb(E, k)
            params = 3 * k * D * F + model["other"]
            compute = (2 + 4) * params * model["tokens"] / node["rate"]
            send = 4 * (groups * hit - hit) * model["tokens"] * D * 2 / link
            seconds = (m - 1 + p) * slots * (compute + send)
            if best is None or seconds < best[3]:
                best = e, p, memory, seconds
    return best
