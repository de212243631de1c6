"""Pairs neighbours, scans the pairs, and fills in the rest, in float64."""


def packed(x, log_a, begins, initial=None):
    new = begins | (torch.arange(len(x)) == 0) if initial is None else begins
    a, u = log_a.double().exp(), (-torch.expm1(2 * log_a.double())) ** 0.5 * x
    a, u = torch.where(new[:, None], 0.0, a), torch.where(new[:, None], x.double(), u)
    if initial is not None:
        u = torch.cat([(u[0] + a[0] * initial)[None], u[1:]])

    def scan(a, u):
        if len(u) == 1:
            return u
        even = len(u) // 2 * 2
        odd = scan(a[1:even:2] * a[0:even:2], u[1:even:2] + a[1:even:2] * u[0:even:2])
        h = torch.empty_like(u)
        h[0], h[1:even:2] = u[0], odd
        h[2::2] = u[2::2] + a[2::2] * odd[: len(h[2::2])]
        return h

    return scan(a, u).float()
