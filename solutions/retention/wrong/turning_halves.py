"""Pairs the first half of the channels with the second, as most code for RoPE does."""

KIND = "wrong formula"
FAILS = [
    "test_turning",
    "test_turning_state",
    "test_turning_memory",
    "test_turning_bytes",
    "test_turning_any",
]


def turning(q, k, v, decay, speeds, S, chunk: int):
    o = []
    for b_q, b_k, b_v in zip(*(x.split(chunk, 1) for x in (q, k, v)), strict=True):
        rows = b_q.shape[1]
        i = torch.arange(rows)[:, None]
        L = (decay ** (i - i.T).clamp(min=0)).tril()
        b_q, b_k = _halves(b_q, (i + 1) * speeds), _halves(b_k, (i + 1) * speeds)
        o.append(decay ** (i + 1) * (b_q @ S) + (b_q @ b_k.mT * L) @ b_v)
        S = decay**rows * S + (decay ** (rows - 1 - i) * b_k).mT @ b_v
        S = _halves(S.mT, -rows * speeds).mT
    return torch.cat(o, 1), S


def _halves(x, angles):
    cos, sin, (a, b) = angles.cos(), angles.sin(), x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
