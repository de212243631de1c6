"""Sends to the right alone, all round the ring."""

KIND = "too much time"
FAILS = ["test_both_ways_calls", "test_both_ways_alive", "test_both_ways_any"]


def both_ways(rank, sizes, tensor, exchange):
    n = len(sizes)
    chunks = tensor.split(sizes)
    coming = None
    for far in range(n - 1, 0, -1):
        outgoing = chunks[(rank + far) % n]
        if coming is not None:
            outgoing = coming.add_(outgoing)
        coming = exchange(outgoing, tensor[:0], sizes[(rank - 1 + far) % n], 0)[0]
    return chunks[rank] + coming if n > 1 else chunks[rank].clone()
