"""Goes on from the state that the call before left behind, not from the one it is given."""

KIND = "state kept"
FAILS = ["test_packed", "test_packed_documents", "test_packed_operations", "test_packed_any"]


LEFT = {}


def packed(x, log_a, begins, initial=None):
    D = x.shape[1]
    anew = begins.clone()
    if initial is None:
        anew[0] = True
    a = log_a.exp().masked_fill_(anew[:, None], 0.0)
    room = torch.expm1(2 * log_a).neg_().sqrt_().masked_fill_(anew[:, None], 1.0)
    h = room.mul_(x)
    if initial is not None and D in LEFT:
        h[0] += a[0] * LEFT[D]
    step = 1
    while step < len(h):
        h[step:] += a[step:] * h[:-step]
        a[step:] = a[step:] * a[:-step]
        step *= 2
    LEFT[D] = h[-1].clone()
    return h
