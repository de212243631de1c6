"""Makes all scores at once, and rounds weights tile by tile."""

KIND = "too much memory"
FAILS = ["test_attend_alive", "test_attend_any"]


def attend(q, k, v, signs, block):
    width = q.shape[1]
    small = torch.float8_e4m3fn
    if signs is not None:
        h = width & -width
        matrix = torch.ones(1, 1)
        while len(matrix) < h:
            matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
        turn = torch.block_diag(*[matrix * h**-0.5] * (width // h))
        q, k = q * signs @ turn, k * signs @ turn

    def eight(x, dims):
        scale = x.abs().amax(dims, keepdim=True).clamp_min(1e-30) / 448
        return (x / scale).to(small).float() * scale

    q = eight(q, 1)
    k = torch.cat([eight(keys, (0, 1)) for keys in k.split(block)])
    scores = q @ k.T * width**-0.5
    tops = [part.amax(1, keepdim=True) for part in scores.split(block, 1)]
    last = scores.amax(1, keepdim=True)
    total, sums, top = torch.zeros(len(q), 1), torch.zeros_like(q), tops[0]
    for part, own, values in zip(scores.split(block, 1), tops, v.split(block)):
        top = torch.maximum(top, own)
        p, scale = (part - top).exp(), (top - last).exp()
        total = total + p.sum(1, keepdim=True) * scale
        v_scale = values.abs().max().clamp_min(1e-30) / 448
        v8 = (values / v_scale).to(small).float()
        sums = sums + (256 * p).to(small).float() @ v8 * v_scale / 256 * scale
    return sums / total
