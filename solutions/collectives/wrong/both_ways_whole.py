"""Sends the whole tensor along, and adds up what it needs."""

KIND = "too many bytes"
FAILS = [
    "test_both_ways_bytes",
    "test_both_ways_calls",
    "test_both_ways_alive",
    "test_both_ways_any",
]


def both_ways(rank, sizes, tensor, exchange):
    n = len(sizes)
    total = tensor.split(sizes)[rank].clone()
    if n == 1:
        return total
    coming = tensor
    for _ in range(n - 1):
        coming = exchange(coming, tensor[:0], len(tensor), 0)[0]
        total += coming.split(sizes)[rank]
    return total
