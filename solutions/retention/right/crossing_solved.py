"""Solves for T: within the window all layers grow, beyond it only the full ones."""


def crossing(layers, full, window, kv, width, size, block, heads, K, V, state, ranks=1, moved=0):
    token = 2 * max(kv // ranks + (kv % ranks > 0), 1) * width * size
    own = heads // ranks + (heads % ranks > 0)
    room = layers * own * K * V * state
    room = 2 * room // token - layers if moved else room // token  # layer-tokens that still fit

    def kept(T):
        started = T if moved else (T + block - 1) // block * block
        return full * started + (layers - full) * min(T, window)

    if kept(1) > room:
        return 1
    # Beyond the window a new block begins just after a multiple of it; within, try every block.
    fits = (room - (layers - full) * window) // full if full else -1
    if full and fits >= window:
        return (fits if moved else fits // block * block) + 1
    for start in range(0, window + 1, 1 if moved else block):
        for T in range(max(1, start), min(window, start + block) + 1):
            if kept(T) > room:
                return T
    if not full:
        return None
    T = window
    while kept(T) <= room:
        T += 1
    return T
