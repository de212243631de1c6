"""Dilated keys lie at multiples of the dilation, wherever the query is."""

KIND = "wrong formula"
FAILS = [
    "test_heard",
    "test_heard_heads",
    "test_heard_any",
]


def heard(T: int, layers: list[list[tuple[int, int, int]]], token: int) -> list[int]:
    tokens = {token}
    for heads in reversed(layers):
        tokens = {
            at
            for i in tokens
            for left, right, dilation in heads
            for at in range(i - left * dilation, i + right * dilation + 1)
            if 0 <= at < T and (at == i or at % dilation == 0)
        }
    return sorted(tokens)
