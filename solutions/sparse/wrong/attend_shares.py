"""Chooses among shares of a softmax, of which small ones are 0."""

KIND = "precision"
FAILS = [
    "test_attend_few",
    "test_attend_reads",
    "test_attend_alive",
    "test_attend_any",
]


def attend(q, score, cache, top: int, block: int):
    (T, H, K), (_, G, N) = q.shape, score.shape
    R, t = H // G, torch.arange(T)
    later = torch.arange(N) * block > t[:, None]
    share = score.masked_fill(later[:, None], float("-inf")).softmax(-1)
    best = share.topk(min(top, N), -1)
    chosen = best.indices.masked_fill(~(best.values > 0), N)
    o, weight = torch.zeros(T, H, K), torch.zeros(T, H)
    most = torch.full((T, H), float("-inf"))
    for g in range(G):
        heads = slice(g * R, g * R + R)
        for c in range(N):
            rows = (chosen[:, g] == c).any(-1).nonzero()[:, 0]
            if len(rows) == 0:
                continue
            k, v = cache.read(g, c)
            s = q[rows, heads] @ k.T * K**-0.5
            hidden = torch.arange(len(k)) + c * block > rows[:, None]
            s.masked_fill_(hidden[:, None], float("-inf"))
            high = torch.maximum(most[rows, heads], s.amax(-1))
            keep = (most[rows, heads] - high).exp()
            s.sub_(high[..., None]).exp_()
            weight[rows, heads] = weight[rows, heads] * keep + s.sum(-1)
            o[rows, heads] = o[rows, heads] * keep[..., None] + s @ v
            most[rows, heads] = high
    return o / weight.clamp(min=1.0)[..., None], most + weight.log()
