"""The heaviest block left to the idlest rank that has room, scores in closed form."""

from itertools import accumulate


def deal(documents: list[int], n: int, block: int) -> list[list[int]]:
    ends = list(accumulate(documents))
    count = ends[-1] // block

    def score(i):
        total = 0
        for end, length in zip(ends, documents, strict=True):
            low = max(i * block - (end - length), 0)
            high = min((i + 1) * block - (end - length), length)
            if low < high:
                total += high * (high + 1) // 2 - low * (low + 1) // 2
        return total

    scores = [score(i) for i in range(count)]
    rows, busy = [[] for _ in range(n)], [0] * n
    for turn in range(count // n):
        heavy = sorted(range(count), key=scores.__getitem__, reverse=True)[turn * n : turn * n + n]
        for i, rank in zip(heavy, sorted(range(n), key=busy.__getitem__), strict=True):
            rows[rank].append(i)
            busy[rank] += scores[i]
    return rows
