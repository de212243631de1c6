"""Every token within reach, as if dilation left no holes."""

KIND = "wrong formula"
FAILS = [
    "test_heard",
    "test_heard_heads",
    "test_heard_any",
]


def heard(T: int, layers: list[list[tuple[int, int, int]]], token: int) -> list[int]:
    before = sum(max(left * dilation for left, _, dilation in heads) for heads in layers)
    after = sum(max(right * dilation for _, right, dilation in heads) for heads in layers)
    return list(range(max(0, token - before), min(T - 1, token + after) + 1))
