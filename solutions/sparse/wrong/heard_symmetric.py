"""Sees as many keys after a query as before it."""

KIND = "part left out"
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
            for left, _, dilation in heads
            for at in range(i - left * dilation, i + left * dilation + 1, dilation)
            if 0 <= at < T
        }
    return sorted(tokens)
