"""Scores of all queries with all keys of a kv head, and a mask."""

KIND = "too much memory"
FAILS = [
    "test_attend_alive",
    "test_attend_any",
]


def attend(q, score, cache, top: int, block: int):
    (T, H, K), (_, G, N) = q.shape, score.shape
    R, t = H // G, torch.arange(T)
    later = torch.arange(N) * block > t[:, None]
    best = score.masked_fill(later[:, None], float("-inf")).topk(min(top, N), -1)
    chosen = torch.zeros(T, G, N, dtype=torch.bool)
    chosen.scatter_(-1, best.indices, best.values > float("-inf"))
    o, lse = torch.zeros(T, H, K), torch.full((T, H), float("-inf"))
    for g in range(G):
        k, v = torch.zeros(T, K), torch.zeros(T, K)
        for c in chosen[:, g].any(0).nonzero()[:, 0].tolist():
            k[c * block : (c + 1) * block], v[c * block : (c + 1) * block] = cache.read(g, c)
        sees = chosen[:, g, t // block] & (t <= t[:, None])
        for h in range(g * R, g * R + R):
            s = (q[:, h] @ k.T * K**-0.5).masked_fill(~sees, float("-inf"))
            lse[:, h] = s.logsumexp(-1)
            o[:, h] = s.softmax(-1).nan_to_num() @ v
    return o, lse
