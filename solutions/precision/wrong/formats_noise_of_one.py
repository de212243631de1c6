"""Forgets that roundings of a step that rarely go up, or rarely down, vary less."""

KIND = "wrong formula"
FAILS = [
    "test_formats",
    "test_formats_any",
    "test_formats_real",
    "test_formats_time",
]


def formats(chip: dict, model: dict, run: dict) -> dict | None:
    linear, layers = model["linear"], model["layers"]
    matrices = layers * sum(k * n for k, n in linear)
    parameters = matrices + model["others"]
    sequences, weight, update = run["sequences"], run["weight"], run["update"]

    spacing = ldexp(1.0, frexp(weight)[1] - 1 - 7)
    f = update / spacing % 1
    trains = {
        "nearest": update > spacing / 2,
        "kahan": update > spacing / 512,
        "master": update > spacing / 2**17,
        "stochastic": run["steps"] * f * spacing**2 <= (run["noise"] * weight) ** 2,
    }
    size = {"nearest": 2, "stochastic": 2, "kahan": 4, "master": 6}
    best = None
    for weights in (name for name in trains if trains[name]):
        for moments, m, bits in (("bf16", 4, 8), ("fp32", 8, 24)):
            if 2.0**-bits / (1 - run["beta2"]) > run["stale"]:
                continue
            for parts in (p for p in range(1, sequences + 1) if sequences % p == 0):
                tokens = sequences // parts * run["length"]
                for gradients, g in (("bf16", 2), ("fp32", 4)):
                    if gradients == "bf16" and parts > 257:
                        continue
                    read = g + m + (4 if weights == "master" else size[weights])
                    moved = parameters * (read + m + size[weights])
                    for matmuls, byte in (("bf16", 2), ("fp8", 1)):
                        layer = tokens * sum(byte * k for k, _ in linear)
                        layer += tokens * 2 * model["between"]
                        for keep, forwards in (("all", 1), ("inputs", 2)):
                            kept = layers * layer
                            if keep == "inputs":
                                kept = layers * tokens * 2 * linear[0][0] + layer
                            total = parameters * (size[weights] + m + g) + kept
                            if 10 * total > 9 * chip["memory"]:
                                continue
                            flops = (forwards + 2) * 2 * tokens * matrices
                            cast = sum(
                                forwards * (tokens * k + k * n) + tokens * n for k, n in linear
                            )
                            each = flops / chip[matmuls]
                            if matmuls == "fp8":
                                each += layers * 6 * cast / chip["bandwidth"]
                            seconds = parts * each + moved / chip["bandwidth"]
                            if best is None or seconds < best["seconds"]:
                                best = {
                                    "weights": weights,
                                    "moments": moments,
                                    "gradients": gradients,
                                    "matmuls": matmuls,
                                    "keep": keep,
                                    "parts": parts,
                                    "bytes": total,
                                    "seconds": seconds,
                                }
    return best
