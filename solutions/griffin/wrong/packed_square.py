"""Makes of every two tokens what is left of one at the other."""

KIND = "too much memory"
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
    total = log_a.double().masked_fill(anew[:, None], -1e9).cumsum(0)
    left = (total[:, None] - total[None]).exp()
    left = left.masked_fill(torch.ones(len(h), len(h), dtype=torch.bool).triu(1)[..., None], 0.0)
    return torch.einsum("tsd,sd->td", left, h.double()).float()
