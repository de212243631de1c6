"""Lists all that fits, and takes the first; gives a list."""


def hybrid(layers, room, step, H, K, V, G, D, sequences, prompt, own, drafts=0):
    per_token = 4 * G * D
    per_state = 4 * H * K * V + 2 * 3 * H * (K + K + V)
    found = []
    for every in range(1, layers + 2):
        kept, moved = 0, 0
        for layer in range(1, layers + 1):
            if layer % every == 0:
                kept += per_token * (prompt + sequences * (own + drafts + 1))
                moved += sequences * per_token * (prompt + own + drafts + 1)
            else:
                kept += per_state + sequences * (drafts + 1) * per_state
                moved += sequences * per_state + sequences * (drafts + 1) * per_state
        if room - kept >= 0 and step - moved >= 0:
            found.append([every, kept, moved])
    return found[0] if found else None
