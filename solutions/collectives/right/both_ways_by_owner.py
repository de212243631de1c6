"""Looks up for each owner how far it is, on either side."""


def both_ways(rank: int, sizes: list[int], tensor, exchange):
    n = len(sizes)
    chunks = tensor.split(sizes)
    empty = tensor.new_zeros(0)
    sums = {}  # of what has come, by the rank that it is for
    for left in range(n // 2, 0, -1):

        def owner(r, way):
            return (r + way * left) % n if way > 0 or 2 * left != n else None

        right, back = owner(rank, 1), owner(rank, -1)
        outgoing = []
        for key in (("right", right), ("left", back)):
            part = empty if key[1] is None else chunks[key[1]]
            outgoing.append(part + sums.pop(key) if key in sums else part)
        comes = owner((rank - 1) % n, 1), owner((rank + 1) % n, -1)
        got = exchange(*outgoing, *(0 if o is None else sizes[o] for o in comes))
        for name, for_whom, one in zip(("right", "left"), comes, got, strict=True):
            if for_whom is not None:
                sums[name, for_whom] = one
    total = chunks[rank].clone()
    for one in sums.values():
        total += one
    return total
