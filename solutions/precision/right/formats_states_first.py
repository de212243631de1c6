"""Of states with as many bytes the soonest first; for each of them what else fits."""


def formats(chip, model, run):
    from fractions import Fraction
    from math import frexp

    def spacing(bits):
        return 2.0 ** (frexp(run["weight"])[1] - 1 - bits)

    params = model["others"] + sum(k * n for k, n in model["linear"]) * model["layers"]
    states = []
    for w, kept, moved, least in (
        ("nearest", 2, 4, spacing(7) / 2),
        ("kahan", 4, 8, spacing(7) / 2 / 256),
        ("master", 6, 10, spacing(23) / 2),
        ("stochastic", 2, 4, None),
    ):
        if least is None:
            f = run["update"] / spacing(7) % 1
            spread = run["steps"] * f * (1 - f)
            if spread > (run["noise"] * run["weight"] / spacing(7)) ** 2:
                continue
        elif not run["update"] > least:
            continue
        for m, size, fraction in (("fp32", 8, 24), ("bf16", 4, 8)):
            if 0.5**fraction / (1 - run["beta2"]) <= run["stale"]:
                for g, wide in (("fp32", 4), ("bf16", 2)):
                    states.append((kept + size + wide, moved + 2 * size + wide, w, m, g))
    room, best = Fraction(9, 10) * Fraction(chip["memory"]), None
    for parts in range(1, run["sequences"] + 1):
        if run["sequences"] % parts:
            continue
        for how, each in (("bf16", 2), ("fp8", 1)):
            for keep in ("all", "inputs"):
                tokens = run["sequences"] // parts * run["length"]
                layer = time = 0
                for k, n in model["linear"]:
                    layer += each * k * tokens
                    times = 2 if keep == "inputs" else 1
                    time += (times + 2) * 2 * k * n * tokens / chip[how]
                    if how == "fp8":
                        time += 6 * times * (k * tokens + k * n) / chip["bandwidth"]
                        time += 6 * n * tokens / chip["bandwidth"]
                layer += 2 * model["between"] * tokens
                first = 2 * model["linear"][0][0] * tokens
                some = layer * model["layers"] if keep == "all" else first * model["layers"] + layer
                for size, moved, w, m, g in states:
                    if g == "bf16" and parts - 1 > 256 or params * size + some > room:
                        continue
                    seconds = parts * model["layers"] * time + params * moved / chip["bandwidth"]
                    if best is None or seconds < best[-1]:
                        best = w, m, g, how, keep, parts, params * size + some, seconds
    names = "weights", "moments", "gradients", "matmuls", "keep", "parts", "bytes", "seconds"
    return best and dict(zip(names, best, strict=True))
