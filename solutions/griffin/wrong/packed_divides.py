"""Divides by the product of all decays so far, which soon is 0."""

KIND = "precision"
FAILS = ["test_packed", "test_packed_documents", "test_packed_operations", "test_packed_any"]


def packed(x, log_a, begins, initial=None):
    anew = begins.clone()
    if initial is None:
        anew[0] = True
    a = log_a.exp().masked_fill_(anew[:, None], 0.0)
    room = torch.expm1(2 * log_a).neg_().sqrt_().masked_fill_(anew[:, None], 1.0)
    h = room.mul_(x)
    if initial is not None:
        h[0] += a[0] * initial
    product = a.cumprod(0)
    return product * (h / product).cumsum(0)
