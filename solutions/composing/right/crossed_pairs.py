"""Asks of every two ranks what the one sends the other."""


def crossed(order: str, sizes: dict, per_node: int, sent: dict) -> dict[tuple[int, int], int]:
    places = [{}]
    for axis in reversed(order):
        places = [place | {axis: i} for place in places for i in range(sizes[axis])]
    places = sorted(places, key=lambda place: [place[axis] for axis in reversed(order)])
    found = {}
    for a, here in enumerate(places):
        alike = [r for r, x in enumerate(places) if (x["t"], x["p"]) == (here["t"], here["p"])]
        for b, there in enumerate(places):
            if a // per_node == b // per_node:
                continue
            nbytes = 0
            for axis in "tcdp":
                others = all(here[x] == there[x] for x in "tcdp" if x != axis)
                gap = there[axis] - here[axis]
                if axis == "p":
                    nbytes += sent["p"] * (others and abs(gap) == 1)
                else:
                    nbytes += sent[axis] * (others and (gap - 1) % sizes[axis] == 0)
            if b in alike and alike.index(a) // sizes["e"] == alike.index(b) // sizes["e"]:
                nbytes += sent["e"]
            if nbytes:
                pair = a // per_node, b // per_node
                found[pair] = found.get(pair, 0) + nbytes
    return found
