"""Keeps as many slots as there are tokens."""

KIND = "part left out"
FAILS = ["test_crossing", "test_crossing_window", "test_crossing_moved", "test_crossing_any"]


def crossing(
    layers: int,
    full: int,
    window: int,
    kv: int,
    width: int,
    size: int,
    block: int,
    heads: int,
    K: int,
    V: int,
    state: int,
    ranks: int = 1,
    moved: bool = False,
) -> int | None:
    token = 2 * max(1, -(-kv // ranks)) * width * size
    states = layers * -(-heads // ranks) * K * V * state
    most = 2 * states - layers * token if moved else states

    def more(T: int) -> bool:
        whole = T
        return token * (full * whole + (layers - full) * min(T, window)) > most

    if not full and not more(window):
        return None
    high = 1
    while not more(high):
        high *= 2
    low = high // 2  # where it is not more
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if more(middle) else (middle, high)
    return high
