"""Bisects, as if fewer layers of full attention always kept and moved less."""

KIND = "gives up"
FAILS = ["test_hybrid", "test_hybrid_any"]


def hybrid(
    layers: int,
    room: int,
    step: int,
    H: int,
    K: int,
    V: int,
    G: int,
    D: int,
    sequences: int,
    prompt: int,
    own: int,
    drafts: int = 0,
) -> tuple[int, int, int] | None:
    cache, state = 2 * G * D * 2, H * (K * V * 4 + 3 * (2 * K + V) * 2)
    new = 1 + drafts

    def bytes_with(every):
        full = layers // every
        kept = full * cache * (prompt + sequences * (own + new))
        kept += (layers - full) * state * (1 + sequences * new)
        one = full * cache * (prompt + own + new) + (layers - full) * state * (1 + new)
        return kept, sequences * one

    def fits(every):
        kept, moved = bytes_with(every)
        return kept <= room and moved <= step

    low, high = 1, layers + 1
    if not fits(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low, *bytes_with(low)
