"""Passes rows on from neighbour to neighbour, each once it has those before it."""

KIND = "too much time"
FAILS = ["test_convolve_rounds", "test_convolve_any"]


def convolve(x, weight, lengths, begins, rank, send, recv):
    taps, start = len(weight), sum(lengths[:rank])
    busy = [r for r in range(len(lengths)) if lengths[r]]
    y = torch.zeros_like(x)
    if rank not in busy:
        return y

    def halo(r):
        before = sum(lengths[:r])
        document = max(begin for begin in begins if begin <= before)
        return min(taps - 1, before - document)

    place = busy.index(rank)
    parts = [recv(busy[place - 1])] if halo(rank) else []
    every = torch.cat([*parts, x])
    if place + 1 < len(busy) and (give := halo(busy[place + 1])):
        send(every[len(every) - give :], busy[place + 1])
    ahead = len(every) - len(x)
    for i in range(len(x)):
        document = max(begin for begin in begins if begin <= start + i)
        for j in range(min(taps, start + i - document + 1)):
            y[i] += weight[j] * every[ahead + i - j]
    return y
