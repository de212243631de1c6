"""All ways to cut, shortest first."""

from itertools import combinations


def pinned(sizes, align, most):
    n, best = len(sizes), None
    for cuts in range(min(most, n)):
        for places in combinations(range(1, n), cuts):
            edges = [0, *places, n]
            total = 0
            for begin, stop in zip(edges, edges[1:]):
                end = 0
                for size in sizes[begin:stop]:
                    end = (end + align - 1) // align * align + size
                total += 2 ** (end - 1).bit_length()
            if best is None or total < best[0]:
                best = total, [b - a for a, b in zip(edges, edges[1:])]
    return best
