"""Lets the mean of all tokens before weigh as much as one of them."""

KIND = "wrong formula"
FAILS = ["test_averaged", "test_averaged_range", "test_averaged_slow", "test_averaged_any"]


def averaged(q, k, v, log_decay, mean, seen: int):
    n = q.shape[1]
    i = torch.arange(n)[:, None]
    L = ((i - i.T).clamp(min=0) * log_decay).exp().tril()
    S = mean.float()
    o = ((i + 1) * log_decay).exp() * (q @ S) + (q @ k.mT * L) @ v
    S = (n * log_decay).exp() * S + (((n - 1 - i) * log_decay).exp() * k).mT @ v
    after = _sum_of_decays(log_decay, seen + n)
    return o / _sum_of_decays(log_decay, seen + 1 + i), (S / after).half()
