"""Divides 1 - decay^n by 1 - decay, which has no digits left where a decay is near 1."""

KIND = "precision"
FAILS = ["test_averaged_slow", "test_averaged_any"]


def averaged(q, k, v, log_decay, mean, seen: int):
    n = q.shape[1]
    i = torch.arange(n)[:, None]
    L = ((i - i.T).clamp(min=0) * log_decay).exp().tril()
    S = _geometric(log_decay, seen) * mean.float()
    o = ((i + 1) * log_decay).exp() * (q @ S) + (q @ k.mT * L) @ v
    S = (n * log_decay).exp() * S + (((n - 1 - i) * log_decay).exp() * k).mT @ v
    after = _geometric(log_decay, seen + n)
    return o / _geometric(log_decay, seen + 1 + i), (S / after).half()


def _geometric(log_decay, tokens):
    closed = (1 - torch.exp(tokens * log_decay)) / (1 - torch.exp(log_decay))
    return torch.where(log_decay == 0, tokens, closed)
