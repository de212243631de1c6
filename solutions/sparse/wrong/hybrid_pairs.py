"""Counts the pairs that are seen, not the squares that are computed."""

KIND = "wrong formula"
FAILS = [
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
    dense = prompt * (prompt + 1) / 2 / block**2
    for p in (p for p in range(2, layers + 1) if layers % p == 0):
        full = layers // p
        for w in range(-(-max(prompt, *chats) // block) * block, 0, -block):
            kept = sum(full * length + (layers - full) * min(length, w) for length in chats) * token
            m = min(prompt, w)
            touched = (m * prompt - m * (m - 1) / 2) / block**2
            took = full * dense + (layers - full) * min(dense, model["ratio"] * touched)
            if kept <= room and took * square <= seconds:
                return p, w, kept, took * square
    return None
