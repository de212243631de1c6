"""Counts up, block by block and token by token, until no window can add anything."""


def crossing(
    layers, full, window, kv, width, size, block, heads, K, V, state, ranks=1, moved=False
):
    from math import ceil

    per_token = 2 * width * size * ceil(kv / ranks)
    limit = layers * ceil(heads / ranks) * K * V * state
    for T in range(1, 10**9):
        if moved:
            cache, other = full * T + (layers - full) * min(T, window) + layers, 2 * limit
        else:
            cache, other = full * ceil(T / block) * block + (layers - full) * min(T, window), limit
        if cache * per_token > other:
            return T
        if full == 0 and T >= window:
            return None
