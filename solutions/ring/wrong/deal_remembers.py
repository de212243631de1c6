"""Adds to the lists of the call before."""

KIND = "state kept"
FAILS = ["test_deal", "test_deal_one", "test_deal_packed", "test_deal_any"]


ROWS: dict[int, list[list[int]]] = {}


def deal(documents: list[int], n: int, block: int) -> list[list[int]]:
    rows = ROWS.setdefault(n, [[] for _ in range(n)])
    places = [place for length in documents for place in range(length)]
    scores = [sum(places[i : i + block]) for i in range(0, len(places), block)]
    for at, i in enumerate(sorted(range(len(scores)), key=scores.__getitem__)):
        rows[at % n].append(i)
    return rows
