"""Has all ranks compete for all places, as if capacity were counted globally."""

KIND = "wrong formula"
FAILS = ["test_drops_ranks", "test_drops_any"]


def drops(choices: list[list[list[int]]], E: int, percent: int) -> list[tuple[int, int, int]]:
    free, asked = [0] * E, []
    for rank, tokens in enumerate(choices):
        k = len(tokens[0]) if tokens else 0
        free = [room - (-k * len(tokens) * percent // (100 * E)) for room in free]
        for token, chosen in enumerate(tokens):
            asked += [(choice, rank, token, expert) for choice, expert in enumerate(chosen)]
    dropped = []
    for choice, rank, token, expert in sorted(asked):
        free[expert] -= 1
        if free[expert] < 0:
            dropped.append((rank, token, choice))
    return sorted(dropped)
