"""Head by head, with a table of weights that are divided before they meet a value."""


def averaged(q, k, v, log_decay, mean, seen):
    H, n, _ = q.shape
    outputs, means = [], []
    for h in range(H):
        log = log_decay[h, 0, 0].double()
        sums = (torch.arange(seen + n) * log).exp().cumsum(0)
        at = sums[seen:, None]  # of each of these tokens
        before = sums[seen - 1] if seen else 0.0
        t = torch.arange(n)
        fades = torch.where(t[:, None] >= t, ((t[:, None] - t) * log).exp(), 0.0) / at
        past = ((t[:, None] + 1) * log).exp() * before / at
        fades, past = fades.float(), past.float()
        old = mean[h].float()
        outputs.append(
            fades.mul(torch.einsum("ik,jk->ij", q[h], k[h])) @ v[h] + past * (q[h] @ old)
        )
        means.append(past[-1] * old + torch.einsum("j,jk,jv->kv", fades[-1], k[h], v[h]))
    return torch.stack(outputs), torch.stack(means).half()
