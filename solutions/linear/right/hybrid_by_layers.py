"""From the most layers of full attention that there can be to none."""


def hybrid(layers, room, step, H, K, V, G, D, sequences, prompt, own, drafts=0):
    ahead = drafts + 1
    token, state = G * D * 4, H * K * V * 4 + H * (4 * K + 2 * V) * 3
    for full in range(layers, -1, -1):
        every = layers // full if full else layers + 1
        while full and every > 1 and layers // (every - 1) == full:
            every -= 1
        if layers // every != full:
            continue  # no `every` gives so many
        cached, fixed = full * token, (layers - full) * state
        kept = cached * prompt + fixed + sequences * (cached * (own + ahead) + fixed * ahead)
        moved = sequences * (cached * (prompt + own + ahead) + fixed * (ahead + 1))
        if max(kept - room, moved - step) <= 0:
            return every, kept, moved
    return None
