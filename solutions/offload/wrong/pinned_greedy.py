"""Puts a tensor into the buffer as long as this takes no more than a new one."""

KIND = "gives up"
FAILS = [
    "test_pinned_several",
    "test_pinned_any",
]


def pinned(sizes, align, most):
    def power(end):
        return 1 << (end - 1).bit_length()

    ends, counts = [], []
    for size in sizes:
        if ends:
            end = -(-ends[-1] // align) * align + size
            if len(ends) == most or power(end) <= power(ends[-1]) + power(size):
                ends[-1], counts[-1] = end, counts[-1] + 1
                continue
        ends.append(size)
        counts.append(1)
    return sum(map(power, ends)), counts
