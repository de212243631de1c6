"""Keeps one state for each sequence, whatever the drafts."""

KIND = "part left out"
FAILS = ["test_hybrid_kept", "test_hybrid_moved", "test_hybrid", "test_hybrid_any"]


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
    cache = 2 * G * D * 2
    state = H * (K * V * 4 + 3 * (2 * K + V) * 2)
    new = 1 + drafts
    for every in range(1, layers + 2):
        full = layers // every
        states = (layers - full) * state
        kept = full * cache * (prompt + sequences * (own + new))
        kept += states * (1 + sequences)
        moved = sequences * (full * cache * (prompt + own + new) + states * (1 + new))
        if kept <= room and moved <= step:
            return every, kept, moved
    return None
