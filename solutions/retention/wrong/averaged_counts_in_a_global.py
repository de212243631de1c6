"""Counts the tokens itself, and goes on counting in the next sequence."""

KIND = "state kept"
FAILS = ["test_averaged", "test_averaged_range", "test_averaged_slow", "test_averaged_any"]

COUNTED = [0]


def averaged(q, k, v, log_decay, mean, seen: int):
    n = q.shape[1]
    seen = COUNTED[0]
    COUNTED[0] += n
    i = torch.arange(n)[:, None]
    L = ((i - i.T).clamp(min=0) * log_decay).exp().tril()
    S = _sum_of_decays(log_decay, seen) * mean.float()
    o = ((i + 1) * log_decay).exp() * (q @ S) + (q @ k.mT * L) @ v
    S = (n * log_decay).exp() * S + (((n - 1 - i) * log_decay).exp() * k).mT @ v
    after = _sum_of_decays(log_decay, seen + n)
    return o / _sum_of_decays(log_decay, seen + 1 + i), (S / after).half()
