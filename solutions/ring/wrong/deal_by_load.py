"""Gives each block to the idlest rank, however many that has."""

KIND = "part left out"
FAILS = ["test_deal", "test_deal_one", "test_deal_packed", "test_deal_any"]


def deal(documents: list[int], n: int, block: int) -> list[list[int]]:
    places = [place for length in documents for place in range(length)]
    scores = [sum(places[i : i + block]) for i in range(0, len(places), block)]
    order = sorted(range(len(scores)), key=scores.__getitem__)
    rows, busy = [[] for _ in range(n)], [0] * n
    for i in reversed(order):
        rank = busy.index(min(busy))
        rows[rank].append(i)
        busy[rank] += scores[i]
    return rows
