"""Head by head, with queries turned for each use, and keys as well."""


def turning(q, k, v, decay, speeds, S, chunk):
    o, states = [], []
    for h in range(len(q)):
        state, rate, rows = S[h], decay[h].item(), []
        for start in range(0, q.shape[1], chunk):
            b_q, b_k, b_v = (x[h, start : start + chunk] for x in (q, k, v))
            n = len(b_q)
            i = torch.arange(n, dtype=torch.float64)
            mask = torch.tril(rate ** (i[:, None] - i).clamp(min=0.0))
            inner = (rotated(b_q, i, speeds) @ rotated(b_k, i, speeds).T * mask) @ b_v
            fade = (rate ** (i + 1)).unsqueeze(1)
            rows.append(inner + fade * (rotated(b_q, i + 1, speeds) @ state))
            late = n - 1 - i
            written = (rotated(b_k, -late, speeds) * (rate**late)[:, None]).T @ b_v
            state = rate**n * rotated(state.T, i[:1] - n, speeds).T + written
        o.append(torch.cat(rows))
        states.append(state)
    return torch.stack(o), torch.stack(states)


def rotated(x, positions, speeds):
    angles = (positions[:, None] * speeds).repeat_interleave(2, -1)
    beside = torch.stack((-x[..., 1::2], x[..., ::2]), -1).reshape(x.shape)
    return x * torch.cos(angles) + beside * torch.sin(angles)
