"""Divides before it multiplies, and so takes 5.000000000000001 places for 6."""

KIND = "precision"
FAILS = ["test_drops", "test_drops_ranks", "test_drops_any"]


def drops(choices: list[list[list[int]]], E: int, percent: int) -> list[tuple[int, int, int]]:
    from math import ceil

    home, free, dropped = [], [0] * E, []
    for rank, tokens in enumerate(choices):
        k = len(tokens[0]) if tokens else 0
        room = [ceil(k * len(tokens) / E * percent / 100)] * E
        for choice in range(k):
            for token, chosen in enumerate(tokens):
                if room[chosen[choice]]:
                    room[chosen[choice]] -= 1
                else:
                    home.append((choice, rank, token))
        free = [a + b for a, b in zip(free, room, strict=True)]
    for choice, rank, token in sorted(home):
        expert = choices[rank][token][choice]
        if free[expert]:
            free[expert] -= 1
        else:
            dropped.append((rank, token, choice))
    return sorted(dropped)
