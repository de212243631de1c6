"""One round for each choice and rank, with exact fractions; then the same rounds with what is left."""


def drops(choices, E, percent):
    from fractions import Fraction
    from math import ceil

    k = max((len(token) for rank in choices for token in rank), default=0)
    factor = Fraction(percent, 100)
    rooms = [[ceil(factor * k * len(rank) / E) for _ in range(E)] for rank in choices]
    waiting = []
    for choice in range(k):
        for r, rank in enumerate(choices):
            for t, token in enumerate(rank):
                if rooms[r][token[choice]] == 0:
                    waiting.append((r, t, choice))
                else:
                    rooms[r][token[choice]] -= 1
    dropped = []
    for r, t, choice in waiting:
        expert = choices[r][t][choice]
        lender = next((room for room in rooms if room[expert]), None)
        if lender:
            lender[expert] -= 1
        else:
            dropped.append((r, t, choice))
    dropped.sort()
    return dropped
