"""The last state has no gradient: the walk back begins with zeros."""

KIND = "part left out"
FAILS = ["test_backward_state", "test_backward_log", "test_backward_memory", "test_backward_any"]


def backward(q, k, v, do, d_last, decay, S, chunk: int):
    T = q.shape[1]
    chunks = list(zip(*(x.split(chunk, 1) for x in (q, k, v, do)), strict=True))
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    for n, (b_q, b_k, b_v, b_do) in enumerate(chunks):
        L, read, write, fade = _fades(decay, b_q.shape[1])
        rows = slice(n * chunk, n * chunk + chunk)
        dq[:, rows] = read * (b_do @ S.mT) + (b_do @ b_v.mT * L) @ b_k
        S = fade * S + (write * b_k).mT @ b_v
    d_log = T * (d_last * S).sum((1, 2))
    dS = torch.zeros_like(d_last)
    for n, (b_q, b_k, b_v, b_do) in reversed(list(enumerate(chunks))):
        L, read, write, fade = _fades(decay, b_q.shape[1])
        rows = slice(n * chunk, n * chunk + chunk)
        dk[:, rows] = write * (b_v @ dS.mT) + (b_do @ b_v.mT * L).mT @ b_q
        dv[:, rows] = write * (b_k @ dS) + (b_q @ b_k.mT * L).mT @ b_do
        dS = fade * dS + (read * b_q).mT @ b_do
    # A fade over n tokens is decay^n: n is the reader's position less the writer's.
    position = torch.arange(1, T + 1)
    d_log += (position * ((q * dq).sum(2) - (k * dk).sum(2))).sum(1)
    return dq, dk, dv, dS, d_log
