"""When a window is faster than dense attention, and below which window memory is the limit."""

from math import ceil, floor, sqrt

from weft.plan.arguments import amount, instance, number, sizes, whole
from weft.plan.hardware import Chip
from weft.plan.roofline import ridge
from weft.plan.sparse.tiles import touched


def time_share(T: int, block: int, window: int, ratio: float = 1.0) -> float:
    """The time of a causal window over that of dense causal attention, by the blocks of both.

    `ratio` is how many times faster the dense kernel goes through a block.

    >>> f"{time_share(8192, 128, 1023):.2f} {time_share(8192, 128, 1023, ratio=2):.2f}"
    '0.26 0.52'
    """
    ratio = amount("ratio", ratio, above=True)
    return ratio * touched(T, block, window, causal=True) / touched(T, block, T, causal=True)


def break_even(block: int, window: int, ratio: float = 1.0) -> int:
    """The least tokens, in whole blocks, from which on a causal window is faster than dense.

    A row has m = 1 + ceil(window / block) blocks, n rows m n - m (m - 1) / 2 of them, and dense
    attention n (n + 1) / 2. Equal at n = ratio m - 1/2 + sqrt(ratio (ratio - 1) m^2 + 1/4): where
    a block takes twice as long, 3.4 m blocks are needed, not 2 m.

    >>> [break_even(128, 1023, ratio) // 1024 for ratio in (1, 1.5, 2, 4)]
    [1, 2, 3, 8]
    """
    (block,) = sizes(block=block)
    m = 1 + ceil(whole("window", window, 0) / block)
    ratio = number("ratio", ratio, "at least 1")
    if ratio < 1:
        raise ValueError(f"ratio is {ratio}, must be at least 1")
    return block * (floor(ratio * m - 0.5 + sqrt(ratio * (ratio - 1) * m * m + 0.25)) + 1)


def window_intensity(keys: int, H: int, G: int, size: int = 2) -> float:
    """FLOPs per byte of attention to `keys` keys: 4 keys H K a token on 2 (H + G) K numbers.

    It does not grow with the sequence, as dense attention's does.

    >>> round(window_intensity(128, H=64, G=8))
    114
    """
    keys, H, G, size = sizes(keys=keys, H=H, G=G, size=size)
    return 4 * keys * H / (2 * (H + G) * size)


def least_keys(chip: Chip, H: int, G: int, dtype: str = "bf16", size: int = 2) -> int:
    """The keys of a window below which the chip's memory bounds it, not its tensor cores.

    >>> from weft.plan.hardware import CHIPS
    >>> least_keys(CHIPS["h100"], H=64, G=8)
    333
    """
    instance(Chip, chip=chip)
    return ceil(ridge(chip, dtype) / window_intensity(1, H, G, size))
