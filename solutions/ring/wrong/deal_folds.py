"""Folds the sequence as if it were one document."""

KIND = "special case"
FAILS = ["test_deal_packed", "test_deal_any"]


def deal(documents: list[int], n: int, block: int) -> list[list[int]]:
    blocks = range(sum(documents) // block)
    rows = [[] for _ in range(n)]
    for i in blocks:
        turn, place = divmod(i, n)
        rows[n - 1 - place if turn % 2 else place].append(i)
    return rows
