"""Each head for itself with the block at hand, by masks, and parts merged by logaddexp."""


def attend(q, score, cache, top: int, block: int):
    T, H, K = q.shape
    G, N = score.shape[1], score.shape[2]
    t = torch.arange(T)
    first = torch.arange(N) * block
    score = torch.where(first[None, None] > t[:, None, None], -torch.inf, score)
    order = score.argsort(-1, descending=True)[:, :, :top]
    wanted = torch.zeros(T, G, N, dtype=torch.bool)
    wanted.scatter_(2, order, True)
    wanted &= score != -torch.inf
    o = [torch.zeros(T, K) for _ in range(H)]
    lse = [torch.full((T,), -torch.inf) for _ in range(H)]
    for g in range(G):
        for c in range(N):
            if not bool(wanted[:, g, c].any()):
                continue
            keys, values = cache.read(g, c)
            at = c * block + torch.arange(keys.shape[0])
            sees = wanted[:, g, c, None] & (at[None] <= t[:, None])
            for h in range(g * (H // G), (g + 1) * (H // G)):
                s = torch.einsum("tk,jk->tj", q[:, h], keys) / K**0.5
                s = torch.where(sees, s, -torch.inf)
                part = torch.logsumexp(s, 1)
                total = torch.logaddexp(lse[h], part)
                base = torch.where(total == -torch.inf, 0.0, total)
                p = torch.exp(s - base[:, None])
                o[h] = o[h] * torch.exp(lse[h] - base)[:, None] + p @ values
                lse[h] = total
    return torch.stack(o, 1), torch.stack(lse, 1)
