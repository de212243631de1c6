"""Heads that share a block as rows of one matrix, index_add and index_copy."""


def attend(q, score, cache, top: int, block: int):
    (T, H, K), (G, N) = q.shape, score.shape[1:]
    R = H // G
    score = score.clone()
    for c in range(N):
        score[: c * block, :, c] = -float("inf")
    least = score.topk(min(top, N), dim=-1).values[..., -1:]
    chosen = (score >= least) & (score > -float("inf"))
    o = torch.zeros(T * H, K)
    m, total = torch.full((T * H,), -float("inf")), torch.zeros(T * H)
    flat = q.reshape(T * H, K) / K**0.5
    for g in range(G):
        for c in range(N):
            (t,) = torch.where(chosen[:, g, c])
            if t.numel() == 0:
                continue
            k, v = cache.read(g, c)
            rows = (t[:, None] * H + torch.arange(g * R, g * R + R)).reshape(-1)
            s = flat[rows] @ k.mT
            s[torch.arange(c * block, c * block + len(k)) > rows[:, None] // H] = -float("inf")
            new = torch.maximum(m[rows], s.max(1).values)
            keep = torch.exp(m[rows] - new)
            p = torch.exp(s - new[:, None])
            total.index_copy_(0, rows, total[rows] * keep + p.sum(1))
            o.index_copy_(0, rows, o[rows] * keep[:, None] + p @ v)
            m.index_copy_(0, rows, new)
    lse = (m + total.log()).reshape(T, H)
    return (o / total.where(total > 0, torch.ones(()))[:, None]).reshape(T, H, K), lse
