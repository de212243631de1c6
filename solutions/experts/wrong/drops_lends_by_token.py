"""Lends to the first tokens of all ranks before the second ones."""

KIND = "wrong order"
FAILS = ["test_drops_ranks", "test_drops_any"]


def drops(choices: list[list[list[int]]], E: int, percent: int) -> list[tuple[int, int, int]]:
    home, free, dropped = [], [0] * E, []
    for rank, tokens in enumerate(choices):
        k = len(tokens[0]) if tokens else 0
        room = [-(-k * len(tokens) * percent // (100 * E))] * E
        for choice in range(k):
            for token, chosen in enumerate(tokens):
                if room[chosen[choice]]:
                    room[chosen[choice]] -= 1
                else:
                    home.append((choice, rank, token))
        free = [a + b for a, b in zip(free, room, strict=True)]
    for choice, token, rank in sorted((c, t, r) for c, r, t in home):
        expert = choices[rank][token][choice]
        if free[expert]:
            free[expert] -= 1
        else:
            dropped.append((rank, token, choice))
    return sorted(dropped)
