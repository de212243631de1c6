"""Tries no window that is longer than every chat."""

KIND = "part left out"
FAILS = [
    "test_hybrid_room",
    "test_hybrid_time",
    "test_hybrid_real",
    "test_hybrid_any",
]


def hybrid(
    model: dict, room: int, rate: float, chats: list[int], prompt: int, seconds: float
) -> tuple[int, int, int, float] | None:
    layers, block = model["layers"], model["block"]
    token = 4 * model["kv_heads"] * model["head"]
    square = 4 * block**2 * model["heads"] * model["head"] / rate
    n = -(-prompt // block)
    dense = n * (n + 1) // 2
    for p in (p for p in range(2, layers + 1) if layers % p == 0):
        full = layers // p
        for w in range(-(-max(chats) // block) * block, 0, -block):
            kept = sum(full * length + (layers - full) * min(length, w) for length in chats) * token
            m = min(n, 1 + -(-(w - 1) // block))
            touched = m * n - m * (m - 1) // 2
            took = full * dense + (layers - full) * min(dense, model["ratio"] * touched)
            if kept <= room and took * square <= seconds:
                return p, w, kept, took * square
    return None
