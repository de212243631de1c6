"""Keeps the state before each chunk, and has autograd go back through one chunk at a time."""


def backward(q, k, v, do, d_last, decay, S, chunk):
    starts = range(0, q.shape[1], chunk)
    log = decay.log()
    states = [S]
    for a in starts:
        rows = slice(a, a + chunk)
        states.append(one_chunk(q[:, rows], k[:, rows], v[:, rows], log, states[-1])[1])
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    dS, d_log = d_last, torch.zeros_like(decay)
    for i, a in reversed(list(enumerate(starts))):
        rows = slice(a, a + chunk)
        given = [x.detach().requires_grad_() for x in (q[:, rows], k[:, rows], v[:, rows], log)]
        state = states[i].detach().requires_grad_()
        o, last = one_chunk(*given, state)
        grads = torch.autograd.grad((o, last), (*given, state), (do[:, rows], dS))
        dq[:, rows], dk[:, rows], dv[:, rows] = grads[:3]
        d_log, dS = d_log + grads[3], grads[4]
    return dq, dk, dv, dS, d_log.flatten()


def one_chunk(q, k, v, log, S):
    n = q.shape[1]
    i = torch.arange(n)[:, None]
    L = ((i - i.T).clamp(min=0) * log).exp().tril()
    o = (q @ k.mT * L) @ v + ((i + 1) * log).exp() * (q @ S)
    return o, (n * log).exp() * S + (((n - 1 - i) * log).exp() * k).mT @ v
