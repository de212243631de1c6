"""Rounds q, k and v before the first tile, with the matrix by its bits."""


def attend(q, k, v, signs, block):
    T, K = q.shape
    if signs is not None:
        i = torch.arange(K)
        h = next(K // n for n in range(1, K + 1) if K % n == 0 and (K // n) & (K // n - 1) == 0)
        both, odd = i[:, None] & i & (h - 1), torch.zeros(K, K, dtype=torch.int64)
        for bit in range(9):
            odd = odd ^ (both >> bit & 1)
        same = i[:, None] // h == i // h
        turn = torch.where(same, (1.0 - 2.0 * odd) * h**-0.5, 0.0)
        q, k = (q * signs) @ turn, (k * signs) @ turn

    def rounded(x, rows):
        parts = []
        for part in x.split(rows):
            by = part.abs().max().clamp(min=1e-20) / 448
            parts.append((part / by).to(torch.float8_e4m3fn).float().mul_(by))
        return parts

    q = torch.cat(rounded(q, 1)) / K**0.5
    top, divisor, o = torch.full((T,), -1e30), torch.zeros(T), torch.zeros(T, K)
    for keys, values in zip(rounded(k, block), rounded(v, block)):
        s = q @ keys.T
        new = torch.maximum(top, s.max(1).values)
        s = (s - new[:, None]).exp()
        old, top = (top - new).exp(), new
        divisor = divisor * old + s.sum(1)
        weights = (s * 256).to(torch.float8_e4m3fn).float() / 256
        o = o * old[:, None] + weights @ values
    return o / divisor[:, None]
