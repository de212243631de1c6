"""GPU by GPU, with a best of its own."""


def prefill(node: dict, model: dict, T: int, seconds: float) -> tuple[int, int, int, float] | None:
    H, G, K, L = (model[name] for name in ("heads", "kv_heads", "head", "layers"))
    n = 1
    while n <= 1024:
        best, a = None, 1
        while a <= n:
            if node["gpus"] % a or G % a:
                a *= 2
                continue
            b = n // a
            C = T / n
            out = n > node["gpus"]
            cache = L * C * G * K * 2 * 2
            blocks = 2 * (C * a) * (G / a) * K * 2 * 2 if b > 1 else 0
            copies = C * (H + G + G) * K * 2 if a > 1 else 0
            total = model["params"] * 2 + cache + blocks + copies
            sending = C * a * (G / a) * K * 2 * 2 / node["outside" if out else "inside"]
            computing = 0.5 * (C * a) ** 2 * (H / a) * 4 * K / node["rate"]
            ring = computing
            for _ in range(b - 1):
                ring += computing if computing > sending else sending
            if a > 1:
                ring += (a - 1) / a * C * (H + G + G + H) * K * 2 / node["inside"]
            time = model["params"] * 2 * C / node["rate"] + L * ring
            if total <= node["memory"] - node["memory"] / 10 and time <= seconds:
                if best is None or time < best[3]:
                    best = a, b, int(total), time
            a *= 2
        if best:
            return best
        n *= 2
    return None
