"""Takes the slots of the ring in the order in which they lie for positions in order."""

KIND = "wrong order"
FAILS = ["test_extend_pieces", "test_extend_room", "test_extend_any"]


def extend(q, k, v, keys, values, first: int, slope: float):
    T, W = len(q), len(keys)
    held = min(first, W)
    k, v = torch.cat([keys[:held], k]), torch.cat([values[:held], v])
    rows = []
    for i in range(held, held + T, W):  # W queries at a time see fewer than 2 W keys
        low, end = max(0, i - W + 1), min(held + T, i + W)
        back = torch.arange(i, end)[:, None] - torch.arange(low, end)
        scores = q[i - held : end - held] @ k[low:end].T * q.shape[1] ** -0.5 - slope * back
        scores = scores.masked_fill((back < 0) | (back >= W), float("-inf"))
        rows.append(scores.softmax(1) @ v[low:end])
    new = min(T, W)
    slots = torch.arange(first + T - new, first + T) % W
    keys[slots], values[slots] = k[-new:], v[-new:]
    return torch.cat(rows)
