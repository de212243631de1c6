"""Takes a block for as heavy as its first token, whatever begins inside."""

KIND = "edge of the range"
FAILS = ["test_deal_packed", "test_deal_any"]


def deal(documents: list[int], n: int, block: int) -> list[list[int]]:
    places = [place for length in documents for place in range(length)]
    scores = places[::block]
    order = sorted(range(len(scores)), key=scores.__getitem__)
    return [order[rank::n] for rank in range(n)]
