"""Adds up in a copy of the whole tensor."""

KIND = "too much memory"
FAILS = ["test_both_ways_alive", "test_both_ways_any"]


def both_ways(rank: int, sizes: list[int], tensor, exchange):
    n, half = len(sizes), len(sizes) // 2
    chunks = tensor.clone().split(sizes)
    none = tensor[:0]
    coming = none, none
    for far in range(half, 0, -1):  # how many places from here those are for whom we send
        both = 2 * far < n  # the rank opposite is reached by the right alone
        to_right, to_left = (rank + far) % n, (rank - far) % n
        at_right, at_left = (rank - 1 + far) % n, (rank + 1 - far) % n
        outgoing = [chunks[to_right], chunks[to_left] if both else none]
        if far < half:
            outgoing[0] = outgoing[0].add_(coming[0])
            if 2 * (far + 1) < n:
                outgoing[1] = outgoing[1].add_(coming[1])
        coming = exchange(*outgoing, sizes[at_right], sizes[at_left] if both else 0)
    total = chunks[rank]
    for came, sides in zip(coming, (2, 3), strict=True):
        if n >= sides:
            total += came
    return total
