"""Takes the mean over tokens, so that long documents count more."""

KIND = "special case"
FAILS = ["test_balance_packed", "test_balance_operations", "test_balance_any"]


def balance(scores, expert, kept, begins: list[int]):
    (T, E), k, count = scores.shape, expert.shape[1], len(begins)
    begin = torch.tensor(begins)
    which = torch.zeros(T, dtype=torch.int64).index_fill_(0, begin, 1).cumsum(0) - 1
    n = torch.diff(begin, append=torch.tensor([T]))[which, None]
    f = torch.zeros(count, E).index_put_((which[:, None], expert), torch.ones(()), True)
    f = f[which] * E / (k * n)  # [T, E], of the token's own document
    s = scores.sigmoid()
    total = s.sum(1, keepdim=True)
    p = s / total
    own = (f * p).sum(1, keepdim=True)
    slope = (f - own) / total * s * torch.sigmoid(-scores) / T
    return own.mean(), slope
