"""Bisects: a wider window never keeps less, nor takes less time."""


def widest(chip, model, lengths, seconds):
    def of(window):
        attention = model["layers"] // model["every"]
        channels = (model["layers"] - attention) * model["width"]
        pair = 4 * model["kv_heads"] * model["head"] * attention
        kept = read = 0
        for length in lengths:
            own = channels * (4 + 2 * model["taps"] - 2)
            kept += own + window * pair
            read += own + 4 * channels + min(window, length) * pair
        weights = 2 * model["params"]
        bytes_time, flops_time = weights / chip["bandwidth"], weights * len(lengths) / chip["rate"]
        step = max(bytes_time, flops_time) + read / chip["bandwidth"]
        return weights + kept <= 0.9 * chip["memory"] and step <= seconds, kept, step

    low, high = 0, (max(lengths) + 127) // 128
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if of(128 * middle)[0] else (low, middle - 1)
    return (128 * low, *of(128 * low)[1:]) if low else None
