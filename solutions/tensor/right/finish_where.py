"""One expression after the other, and torch.where for what does not count."""


def finish(scores, stats, targets, first, words, smoothing, z):
    T, n = scores.shape
    counts = targets != -1
    many = counts.sum().clamp(min=1)
    m, s, total, said = (torch.where(counts, x, 0.0) for x in stats.unbind(-1))
    top = m.max(dim=0).values
    lse = top + torch.log((s * torch.exp(m - top)).sum(0).where(counts, torch.ones(())))
    mean = total.sum(0) / words
    loss = (1 - smoothing) * (lse - said.sum(0)) + smoothing * (lse - mean) + z * lse * lse
    loss = torch.where(counts, loss, 0.0).sum() / many

    p = torch.exp(scores - lse[:, None])
    p *= (1 + 2 * z * lse)[:, None] / many
    p -= smoothing / words / many
    at = targets - first
    mine = (at >= 0) & (at < n) & counts
    off = torch.where(mine, (1 - smoothing) / many, 0.0)
    p.scatter_add_(1, at.clamp(0, n - 1)[:, None], -off[:, None])
    real = (first + torch.arange(n) < words)[None, :] & counts[:, None]
    return loss, torch.where(real, p, 0.0)
