"""What each token it sees has heard, remembered within a call."""

from functools import cache


def heard(T: int, layers: list[list[tuple[int, int, int]]], token: int) -> list[int]:
    @cache
    def of(level, i):
        if level == 0:
            return frozenset([i])
        found = set()
        for left, right, dilation in layers[level - 1]:
            for x in range(-left, right + 1):
                if 0 <= i + x * dilation < T:
                    found |= of(level - 1, i + x * dilation)
        return frozenset(found)

    return sorted(of(len(layers), token))
