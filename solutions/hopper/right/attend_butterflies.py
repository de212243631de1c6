"""Sums and differences for the matrix, and the output kept divided."""


def attend(q, k, v, signs, block):
    def spread(x):
        if signs is None:
            return x
        x, half = x * signs, 1
        while x.shape[1] % (2 * half) == 0:
            left, right = x.unflatten(1, (-1, 2, half)).unbind(2)
            x = torch.cat([left + right, left - right], 2).flatten(1)
            half *= 2
        return x * half**-0.5

    def small(x, by):
        by = torch.where(by > 0, by / 448, 1.0)
        return (x / by).to(torch.float8_e4m3fn).float(), by

    rows = spread(q)
    rows, row_scale = small(rows, rows.abs().amax(1, keepdim=True))
    o, log = torch.zeros_like(q), torch.full((len(q), 1), float("-inf"))
    most = log.clone()
    for begin in range(0, len(k), block):
        keys, values = spread(k[begin : begin + block]), v[begin : begin + block]
        keys, key_scale = small(keys, keys.abs().max())
        values, scale = small(values, values.abs().max())
        scores = rows @ keys.T * row_scale * key_scale / q.shape[1] ** 0.5
        most = torch.maximum(most, scores.amax(1, keepdim=True))
        p = (scores - most).exp()
        both = torch.logaddexp(log, most + p.sum(1, keepdim=True).log())
        part = (256 * p).to(torch.float8_e4m3fn).float() @ values * (scale / 256)
        o = o * (log - both).exp() + part * (most - both).exp()
        log = both
    return o
