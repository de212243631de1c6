"""Cuts the sequence into as many pieces as there are ranks."""

KIND = "other mechanism"
FAILS = ["test_deal_one", "test_deal_packed", "test_deal_any"]


def deal(documents: list[int], n: int, block: int) -> list[list[int]]:
    each = sum(documents) // block // n
    return [list(range(rank * each, (rank + 1) * each)) for rank in range(n)]
