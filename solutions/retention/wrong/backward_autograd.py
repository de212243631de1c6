"""Has autograd go back through all chunks, for which it keeps what each computed."""

KIND = "other mechanism"
FAILS = ["test_backward_memory", "test_backward_any"]


def backward(q, k, v, do, d_last, decay, S, chunk):
    log = decay.log()
    given = [x.detach().requires_grad_() for x in (q, k, v, S, log)]
    q, k, v, S, log = given
    o = []
    for b_q, b_k, b_v in zip(*(x.split(chunk, 1) for x in (q, k, v)), strict=True):
        n = b_q.shape[1]
        i = torch.arange(n)[:, None]
        L = ((i - i.T).clamp(min=0) * log).exp().tril()
        o.append((b_q @ b_k.mT * L) @ b_v + ((i + 1) * log).exp() * (b_q @ S))
        S = (n * log).exp() * S + (((n - 1 - i) * log).exp() * b_k).mT @ b_v
    *grads, d_log = torch.autograd.grad((torch.cat(o, 1), S), given, (do, d_last))
    return *grads, d_log.flatten()
