"""Takes what just fits for too much."""

KIND = "off by one"
FAILS = ["test_widest_memory", "test_widest_time", "test_widest_real", "test_widest_any"]


def widest(
    chip: dict, model: dict, lengths: list[int], seconds: float
) -> tuple[int, int, float] | None:
    attention = model["layers"] // model["every"]
    states = (model["layers"] - attention) * model["width"]
    inputs = (model["taps"] - 1) * states
    token = attention * 2 * model["kv_heads"] * model["head"] * 2
    weights, n = 2 * model["params"], len(lengths)
    matmuls = max(weights / chip["bandwidth"], 2 * model["params"] * n / chip["rate"])
    for window in range(-(-max(lengths) // 128) * 128, 0, -128):
        kept = n * (4 * states + 2 * inputs + token * window)
        read = sum(min(length, window) for length in lengths) * token
        step = matmuls + (n * (8 * states + 2 * inputs) + read) / chip["bandwidth"]
        if 10 * (weights + kept) < 9 * chip["memory"] and step <= seconds:
            return window, kept, step
    return None
