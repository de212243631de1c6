"""Searches the widest window by halving: nothing gets less with it."""


def hybrid(
    model: dict, room: int, rate: float, chats: list[int], prompt: int, seconds: float
) -> tuple[int, int, int, float] | None:
    layers, block = model["layers"], model["block"]
    n = (prompt + block - 1) // block
    second = 4 * block * block * model["heads"] * model["head"] / rate

    def design(p, windows):
        full, w = layers // p, windows * block
        kept = full * sum(chats) + (layers - full) * sum(min(w, one) for one in chats)
        squares = sum(min(r + 1, (w - 2) // block + 2) for r in range(n))
        slow = min(model["ratio"] * squares, n * (n + 1) / 2)
        took = (full * (n * (n + 1) / 2) + (layers - full) * slow) * second
        return p, w, kept * 2 * 2 * model["kv_heads"] * model["head"], took

    def fits(p, windows):
        _, _, kept, took = design(p, windows)
        return kept <= room and took <= seconds

    for p in range(2, layers + 1):
        if layers % p or not fits(p, 1):
            continue
        low, high = 1, (max([prompt, *chats]) - 1) // block + 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(p, middle) else (low, middle)
        return design(p, low)
    return None
