"""The last rank of a ring sends nothing to the first."""

KIND = "part left out"
FAILS = ["test_crossed", "test_crossed_experts", "test_crossed_any"]


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
            if i + 1 < size:
                send(rank, rank + strides[axis], sent[axis])
        if digit(rank, "p") + 1 < sizes["p"]:
            send(rank, rank + strides["p"], sent["p"])
            send(rank + strides["p"], rank, sent["p"])
        rows.setdefault((digit(rank, "t"), digit(rank, "p")), []).append(rank)
    e = sizes["e"]
    for row in rows.values():
        for i, rank in enumerate(row):
            for other in row[i // e * e : i // e * e + e]:
                send(rank, other, sent["e"])
    return found
