"""Sends as many rows as there are taps, one of which nobody looks at."""

KIND = "off by one"
FAILS = ["test_convolve_bytes", "test_convolve_rounds", "test_convolve_any"]


def convolve(x, weight, lengths: list[int], begins: list[int], rank: int, send, recv):
    starts = [sum(lengths[:r]) for r in range(len(lengths) + 1)]
    own = range(starts[rank], starts[rank + 1])
    for r in range(rank + 1, len(lengths)):
        if rows := _both(_seen(starts, begins, len(weight), r), own):
            send(x[rows[0] - own.start : rows[-1] + 1 - own.start], r)
    seen = _seen(starts, begins, len(weight), rank)
    owners = [r for r in range(rank) if _both(seen, range(starts[r], starts[r + 1]))]
    every = torch.cat([*map(recv, owners), x])  # from seen's first position on
    y = torch.zeros_like(x)
    for begin, end in zip(begins, [*begins[1:], starts[-1]], strict=True):
        for j in range(len(weight)):
            low, high = max(own.start, begin + j), min(own.stop, end)
            if low < high:
                before = every[low - j - seen.start : high - j - seen.start]
                y[low - own.start : high - own.start] += weight[j] * before
    return y


def _seen(starts: list[int], begins: list[int], taps: int, rank: int) -> range:
    """The positions in front of a rank's own that its tokens see."""
    start = starts[rank]
    if start == starts[rank + 1]:
        return range(start, start)
    document = max(begin for begin in begins if begin <= start)
    return range(max(document, start - taps), start)
