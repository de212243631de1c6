"""Resets a at a new document and leaves the root, but for the very first token."""

KIND = "part left out"
FAILS = ["test_packed_documents", "test_packed_operations", "test_packed_any"]


def packed(x, log_a, begins, initial=None):
    anew = begins.clone()
    if initial is None:
        anew[0] = True
    a = log_a.exp().masked_fill_(anew[:, None], 0.0)
    room = torch.expm1(2 * log_a).neg_().sqrt_()
    if initial is None:
        room[0] = 1.0
    h = room.mul_(x)
    if initial is not None:
        h[0] += a[0] * initial
    step = 1
    while step < len(h):
        h[step:] += a[step:] * h[:-step]
        a[step:] = a[step:] * a[:-step]
        step *= 2
    return h
