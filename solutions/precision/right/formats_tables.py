"""What trains, bytes and seconds in helpers, and the least of all products."""


def formats(chip, model, run):
    from itertools import product
    from math import floor, log2, sqrt

    place = 2.0 ** floor(log2(run["weight"]))
    ulp, u, L = place / 128, run["update"], model["layers"]
    matmul = L * sum(k * n for k, n in model["linear"])
    N = matmul + model["others"]
    chance = u / ulp - floor(u / ulp)
    noise = sqrt(run["steps"] * chance * (1 - chance)) * ulp
    weights = {"master": (6, 4, 6, place * 2.0**-24), "kahan": (4, 4, 4, ulp / 512)}
    weights |= {"stochastic": (2, 2, 2, 0.0), "nearest": (2, 2, 2, ulp / 2)}
    weights = {name: row for name, row in weights.items() if u > row[3]}
    if noise > run["noise"] * run["weight"]:
        weights.pop("stochastic", None)
    moments = {"bf16": (4, 2**-8), "fp32": (8, 2**-24)}
    moments = {n: b for n, (b, off) in moments.items() if off / (1 - run["beta2"]) <= run["stale"]}

    def one(w, m, g, how, keep, parts):
        tokens = run["sequences"] * run["length"] // parts
        kept, read, written, _ = weights[w]
        size = 4 if g == "fp32" else 2
        widths = sum(k for k, _ in model["linear"])
        layer = tokens * (widths * (1 + (how == "bf16")) + 2 * model["between"])
        activations = L * layer
        if keep == "inputs":
            activations = layer + 2 * L * tokens * model["linear"][0][0]
        total = N * (kept + moments[m] + size) + activations
        f = 1 + (keep == "inputs")
        seconds = parts * (2 + f) * 2 * tokens * matmul / chip[how]
        if how == "fp8":
            outputs = sum(n for _, n in model["linear"])
            casts = L * tokens * (f * widths + outputs) + f * matmul
            seconds += parts * casts * 6 / chip["bandwidth"]
        seconds += N * (size + 2 * moments[m] + read + written) / chip["bandwidth"]
        names = "weights", "moments", "gradients", "matmuls", "keep", "parts", "bytes", "seconds"
        return dict(zip(names, (w, m, g, how, keep, parts, total, seconds), strict=True))

    divisors = [p for p in range(1, run["sequences"] + 1) if not run["sequences"] % p]
    kinds = "fp32", "bf16"
    every = product(weights, moments, kinds, ("fp8", "bf16"), ("inputs", "all"), divisors)
    found = [one(*choice) for choice in every if choice[2] == "fp32" or choice[5] <= 257]
    fit = [one for one in found if one["bytes"] * 10 <= 9 * chip["memory"]]
    return min(fit, key=lambda one: one["seconds"], default=None)
