"""Begins at 0 whatever state came before."""

KIND = "part left out"
FAILS = ["test_packed", "test_packed_documents", "test_packed_operations", "test_packed_any"]


def packed(x, log_a, begins, initial=None):
    anew = begins.clone()
    if initial is None:
        anew[0] = True
    a = log_a.exp().masked_fill_(anew[:, None], 0.0)
    room = torch.expm1(2 * log_a).neg_().sqrt_().masked_fill_(anew[:, None], 1.0)
    h = room.mul_(x)
    step = 1
    while step < len(h):
        h[step:] += a[step:] * h[:-step]
        a[step:] = a[step:] * a[:-step]
        step *= 2
    return h
