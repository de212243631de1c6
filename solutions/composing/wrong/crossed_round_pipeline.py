"""Stages stand in a ring, too: the last one sends to the first."""

KIND = "wrong formula"
FAILS = ["test_crossed_experts", "test_crossed_any"]


def crossed(order: str, sizes: dict, per_node: int, sent: dict) -> dict[tuple[int, int], int]:
    strides, n = {}, 1
    for axis in order:
        strides[axis], n = n, n * sizes[axis]
    found = {}

    def send(a, b, nbytes):
        pair = a // per_node, b // per_node
        if pair[0] != pair[1] and nbytes:
            found[pair] = found.get(pair, 0) + nbytes

    def digit(rank, axis):
        return rank // strides[axis] % sizes[axis]

    rows = {}
    for rank in range(n):
        for axis in "tcd":
            i, size = digit(rank, axis), sizes[axis]
            send(rank, rank + ((i + 1) % size - i) * strides[axis], sent[axis])
        i, stages = digit(rank, "p"), sizes["p"]
        for step in (1, -1):
            send(rank, rank + ((i + step) % stages - i) * strides["p"], sent["p"])
        rows.setdefault((digit(rank, "t"), digit(rank, "p")), []).append(rank)
    e = sizes["e"]
    for row in rows.values():
        for i, rank in enumerate(row):
            for other in row[i // e * e : i // e * e + e]:
                send(rank, other, sent["e"])
    return found
