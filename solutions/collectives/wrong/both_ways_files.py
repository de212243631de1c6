"""Leaves its tensor in a file for the others."""

KIND = "out of sight"
FAILS = [
    "test_both_ways",
    "test_both_ways_bytes",
    "test_both_ways_calls",
    "test_both_ways_alive",
    "test_both_ways_any",
]


def both_ways(rank, sizes, tensor, exchange):
    from pathlib import Path

    Path(f"../ring of rank {rank}").write_text(repr(tensor.tolist()))
    read = [Path(f"../ring of rank {r}").read_text() for r in range(len(sizes))]
    return sum(tensor.new_tensor(eval(text)).split(sizes)[rank] for text in read)
