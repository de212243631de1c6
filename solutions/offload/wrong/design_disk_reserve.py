"""Keeps a tenth of the disk free, too."""

KIND = "wrong formula"
FAILS = [
    "test_design_fits",
    "test_design_seconds",
    "test_design_real",
    "test_design_any",
]


def design(node: dict, model: dict, batch: int) -> tuple[str, int, str, bool, int, float, float]:
    d, L, S, p = node["gpus"], model["layers"], model["tokens"], model["params"]
    P, best = L * p, None
    for weights, eighths, states, again, micro in product(
        ("whole", "shard", "host"), range(9), ("host", "disk"), (True, False), range(1, batch + 1)
    ):
        if batch % (d * micro) or (eighths == 8 and states == "disk"):
            continue
        m, q, tokens = batch // (d * micro), 1 - eighths / 8, micro * S
        kept = 2 * model["width"] if again else model["kept"]
        gpu = {"whole": 2 * P, "shard": 2 * P / d + 4 * p, "host": 4 * p}[weights] + 4 * p
        gpu += 2 * eighths * P / d + tokens * (L * kept + again * model["kept"])
        optimizer = 12 * q * P
        ram = 4 * q * P + 2 * P * (weights == "host") + optimizer * (states == "host")
        disk = optimizer * (states == "disk")
        if gpu > 0.9 * node["memory"] or ram > 0.9 * node["ram"] or disk > 0.9 * node["disk"]:
            continue
        once = 2 * P * tokens / node["rate"]
        up = 2 * P / d / node["link"] * (weights == "host")
        ring = 2 * P * (d - 1) / d / node["inside"]
        gather = ring * (weights != "whole")
        down, add = 2 * q * P / d / node["link"], 12 * q * P / node["touch"]
        forward = max(once, up, gather)
        backward = max((3 if again else 2) * once, up, gather + ring, down, add)
        update = max(28 * q * P / node["touch"], 2 * disk / node["drive"])
        back = down * (weights != "host") + ring * (weights == "whole")
        seconds = m * (forward + backward) + update + back
        if best is None or seconds < best[-1]:
            best = weights, eighths, states, again, micro, gpu, seconds
    return best
