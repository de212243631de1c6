"""Every design, listed; squares counted from the end of the prompt."""

import math


def hybrid(
    model: dict, room: int, rate: float, chats: list[int], prompt: int, seconds: float
) -> tuple[int, int, int, float] | None:
    block, n = model["block"], math.ceil(prompt / model["block"])
    most = math.ceil(max(prompt, max(chats)) / block)
    found = []
    for p in [p for p in range(2, model["layers"] + 1) if model["layers"] % p == 0]:
        full = model["layers"] / p
        local = model["layers"] - full
        for m in range(1, most + 1):
            tokens = sum(full * one + local * min(one, m * block) for one in chats)
            back = min(n, m + (block > 1))
            squares = back * (back + 1) / 2 + (n - back) * back
            flops = 4 * block * block * model["head"] * model["heads"]
            dense = flops * n * (n + 1) / 2 / rate
            took = full * dense + local * min(dense, flops * model["ratio"] * squares / rate)
            kept = int(tokens) * 4 * model["head"] * model["kv_heads"]
            if kept <= room and took <= seconds:
                found.append((p, -m, kept, took))
    if not found:
        return None
    p, m, kept, took = min(found)
    return p, -m * block, kept, took
