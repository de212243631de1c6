"""Probabilities as a softmax of log-sigmoids, in float64; sums by document with index_add."""


def balance(scores, expert, kept, begins):
    T, E = scores.shape
    k, count = expert.shape[1], len(begins)
    lengths = torch.tensor([b - a for a, b in zip(begins, [*begins[1:], T], strict=True)])
    document = torch.repeat_interleave(torch.arange(count), lengths)
    wide = scores.double()
    p = torch.nn.functional.logsigmoid(wide).softmax(1)
    ones = torch.ones(T * k, dtype=torch.float64)
    f = torch.zeros(count * E, dtype=torch.float64)
    f = f.index_add(0, (document[:, None] * E + expert).flatten(), ones).view(count, E)
    f = f * E / k / lengths[:, None]
    P = torch.zeros(count, E, dtype=torch.float64).index_add(0, document, p) / lengths[:, None]
    loss = torch.einsum("ji,ji->", f, P) / count
    slope = p * (f[document] - (f[document] * p).sum(1, keepdim=True)) * (1 - wide.sigmoid())
    slope = slope / (lengths[document] * count)[:, None]
    return loss.float(), slope.float()
