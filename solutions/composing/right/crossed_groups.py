"""Makes all groups first, as lists of ranks, then walks along each."""

from collections import Counter, defaultdict
from itertools import pairwise, permutations


def crossed(order: str, sizes: dict, per_node: int, sent: dict) -> dict[tuple[int, int], int]:
    n = 1
    for axis in order:
        n *= sizes[axis]
    digits = []
    for rank in range(n):
        rest, place = rank, {}
        for axis in order:
            place[axis], rest = rest % sizes[axis], rest // sizes[axis]
        digits.append(place)

    def groups(free):
        found = defaultdict(list)
        for rank, place in enumerate(digits):
            found[tuple(place[axis] for axis in "tcdp" if axis not in free)].append(rank)
        return list(found.values())

    messages = []
    for axis in "tcd":
        for group in groups(axis):
            messages += [(a, b, sent[axis]) for a, b in zip(group, group[1:] + group[:1])]
    for group in groups("p"):
        for a, b in pairwise(group):
            messages += [(a, b, sent["p"]), (b, a, sent["p"])]
    for group in groups("cd"):
        for i in range(0, len(group), sizes["e"]):
            shared = group[i : i + sizes["e"]]
            messages += [(a, b, sent["e"]) for a, b in permutations(shared, 2)]
    found = Counter()
    for a, b, nbytes in messages:
        if a // per_node != b // per_node and nbytes > 0:
            found[a // per_node, b // per_node] += nbytes
    return dict(found)
