"""One table for all tokens, and the state once at the end."""

KIND = "too much memory"
FAILS = ["test_turning_memory", "test_turning_bytes", "test_turning_any"]


def turning(q, k, v, decay, speeds, S, chunk: int):
    o = []
    for b_q, b_k, b_v in zip(*(x.split(x.shape[1], 1) for x in (q, k, v)), strict=True):
        rows = b_q.shape[1]
        i = torch.arange(rows)[:, None]
        L = (decay ** (i - i.T).clamp(min=0)).tril()
        b_q, b_k = _turned(b_q, (i + 1) * speeds), _turned(b_k, (i + 1) * speeds)
        o.append(decay ** (i + 1) * (b_q @ S) + (b_q @ b_k.mT * L) @ b_v)
        S = decay**rows * S + (decay ** (rows - 1 - i) * b_k).mT @ b_v
        S = _turned(S.mT, -rows * speeds).mT
    return torch.cat(o, 1), S
