"""Divides the heads of queries alone."""

KIND = "edge of the range"
FAILS = ["test_prefill_grid", "test_prefill_real", "test_prefill_any"]


def prefill(node: dict, model: dict, T: int, seconds: float) -> tuple[int, int, int, float] | None:
    H, G, K = model["heads"], model["kv_heads"], model["head"]
    n = 1
    while n <= 1024:
        C, found = T // n, []
        for a in range(1, min(n, node["gpus"]) + 1):
            if n % a or node["gpus"] % a or H % a:
                continue
            b, kept = n // a, 2 * model["params"] + 4 * model["layers"] * C * G * K
            kept += (8 * C * G * K if b > 1 else 0) + (2 * C * (H + 2 * G) * K if a > 1 else 0)
            exchange = 2 * C * (2 * H + 2 * G) * K * (a - 1) / a / node["inside"]
            step = 2 * a * C * C * H * K / node["rate"]
            hop = 4 * C * G * K / node["inside" if n <= node["gpus"] else "outside"]
            layer = exchange + (b - 1) * max(step, hop) + step
            took = 2 * model["params"] * C / node["rate"] + model["layers"] * layer
            if 10 * kept <= 9 * node["memory"] and took <= seconds:
                found.append((took, a, b, kept))
        if found:
            took, a, b, kept = min(found)
            return a, b, kept, took
        n *= 2
    return None
