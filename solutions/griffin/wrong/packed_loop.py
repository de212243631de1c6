"""Goes from token to token."""

KIND = "too much time"
FAILS = ["test_packed_operations", "test_packed_any"]


def packed(x, log_a, begins, initial=None):
    anew = begins.clone()
    if initial is None:
        anew[0] = True
    a = log_a.exp().masked_fill_(anew[:, None], 0.0)
    room = torch.expm1(2 * log_a).neg_().sqrt_().masked_fill_(anew[:, None], 1.0)
    h = room.mul_(x)
    if initial is not None:
        h[0] += a[0] * initial
    for t in range(1, len(h)):
        h[t] += a[t] * h[t - 1]
    return h
