"""Asks the left neighbour alone for rows, as if it had enough of them."""

KIND = "special case"
FAILS = ["test_convolve", "test_convolve_bytes", "test_convolve_rounds", "test_convolve_any"]


def convolve(x, weight, lengths, begins, rank, send, recv):
    taps, start = len(weight), sum(lengths[:rank])

    def halo(r):
        if r == 0 or r == len(lengths) or not lengths[r]:
            return 0
        before = sum(lengths[:r])
        document = max(begin for begin in begins if begin <= before)
        return min(taps - 1, before - document, lengths[r - 1])

    if give := halo(rank + 1):
        send(x[len(x) - give :], rank + 1)
    parts = [recv(rank - 1)] if halo(rank) else []
    every = torch.cat([*parts, x])
    ahead = len(every) - len(x)
    y = torch.zeros_like(x)
    for i in range(len(x)):
        document = max(begin for begin in begins if begin <= start + i)
        for j in range(min(taps, ahead + i + 1, start + i - document + 1)):
            y[i] += weight[j] * every[ahead + i - j]
    return y
