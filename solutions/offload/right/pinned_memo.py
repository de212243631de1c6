"""From the back, with a memory of what has been tried."""

from functools import cache


def pinned(sizes, align, most):
    @cache
    def rest(start, left):
        if start == len(sizes):
            return 0, 0, ()
        found, end = [], 0
        if left:
            for stop in range(start + 1, len(sizes) + 1):
                end += -end % align + sizes[stop - 1]
                taken = 1
                while taken < end:
                    taken *= 2
                others = rest(stop, left - 1)
                if others:
                    found.append((taken + others[0], 1 + others[1], (stop - start, *others[2])))
        return min(found, default=None)

    total, _, counts = rest(0, most)
    return total, list(counts)
