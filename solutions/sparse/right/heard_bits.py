"""Sets of tokens as bits of a number, shifted."""


def heard(T: int, layers: list[list[tuple[int, int, int]]], token: int) -> list[int]:
    tokens, every = 1 << token, (1 << T) - 1
    for heads in layers[::-1]:
        found = tokens
        for left, right, dilation in heads:
            for x in range(1, left + 1):
                found |= tokens >> x * dilation
            for x in range(1, right + 1):
                found |= tokens << x * dilation
        tokens = found & every
    return [i for i in range(T) if tokens >> i & 1]
