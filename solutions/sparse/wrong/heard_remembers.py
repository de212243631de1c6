"""Remembers what a token hears of below a layer, and not of which model."""

KIND = "state kept"
FAILS = [
    "test_heard",
    "test_heard_heads",
    "test_heard_any",
]


HEARD = {}


def heard(T: int, layers: list[list[tuple[int, int, int]]], token: int) -> list[int]:
    if not layers:
        return [token]
    if (len(layers), token) not in HEARD:
        HEARD[len(layers), token] = sorted(
            {
                one
                for left, right, dilation in layers[-1]
                for at in range(token - left * dilation, token + right * dilation + 1, dilation)
                if 0 <= at < T
                for one in heard(T, layers[:-1], at)
            }
        )
    return HEARD[len(layers), token]
