"""One forward for all: dq reads a state of values, dk and dv are the same in reversed time."""


def backward(q, k, v, do, d_last, decay, S, chunk):
    T = q.shape[1]
    dq, end = forward(do, v, k, S.mT, decay, chunk, 1)
    q, k, v, do = (x.flip(1) for x in (q, k, v, do))
    dk, _ = forward(v, do, q, d_last.mT, decay, chunk, 0)
    dv, dS = forward(k, q, do, d_last, decay, chunk, 0)
    t = torch.arange(T, 0, -1)[:, None]
    d_log = (t * (q * dq.flip(1))).sum((1, 2)) - (t * (k * dk)).sum((1, 2))
    d_log += T * (end.mT * d_last).sum((1, 2))
    return dq, dk.flip(1), dv.flip(1), dS, d_log


def forward(q, k, v, S, decay, chunk, early):
    """Chunked retention; the state fades `early` times before the first token reads it."""
    o = torch.empty_like(v)
    for start in range(0, q.shape[1], chunk):
        rows = slice(start, start + chunk)
        b_q, b_k, b_v = q[:, rows], k[:, rows], v[:, rows]
        n = b_q.shape[1]
        i = torch.arange(n)[:, None]
        scores = (b_q @ b_k.mT) * decay ** (i - i.T).abs()
        o[:, rows] = scores.tril() @ b_v + decay ** (i + early) * (b_q @ S)
        S = decay**n * S + (b_k * decay ** (n - i - early)).mT @ b_v
    return o, S
