"""Goes from the first layer to the last."""

KIND = "wrong order"
FAILS = [
    "test_heard_heads",
    "test_heard_any",
]


def heard(T: int, layers: list[list[tuple[int, int, int]]], token: int) -> list[int]:
    tokens = {token}
    for heads in layers:
        tokens = {
            at
            for i in tokens
            for left, right, dilation in heads
            for at in range(i - left * dilation, i + right * dilation + 1, dilation)
            if 0 <= at < T
        }
    return sorted(tokens)
