"""Token by token, with the sum of the decays carried along."""


def averaged(q, k, v, log_decay, mean, seen):
    decay = log_decay.exp()
    rate = -torch.expm1(log_decay)
    n = torch.where(rate > 0, -torch.expm1(seen * log_decay) / rate.clamp(min=1e-30), float(seen))
    mean, o = mean.float(), []
    for t in range(q.shape[1]):
        after = 1 + decay * n
        mean = mean * (decay * n / after) + k[:, t, :, None] * (v[:, t, None, :] / after)
        o.append((q[:, t, :, None] * mean).sum(1))
        n = after
    return torch.stack(o, 1), mean.to(torch.float16)
