"""Closed forms: the idle time of a pipeline and its memory, without playing it through."""

from fractions import Fraction
from math import ceil


def fraction(p: int, m: int, v: int = 1) -> float:
    """Idle over total time, (p - 1) / (v m + p - 1), for GPipe, 1F1B and interleaved 1F1B.

    Huang et al. 2019 and Qi et al. 2024 mean this by "bubble".

    >>> round(fraction(p=4, m=8), 4)
    0.2727
    """
    return (p - 1) / (v * m + p - 1)


def overhead(p: int, m: int, v: int = 1) -> float:
    """Idle over ideal time, (p - 1) / (v m): the same bubble, against a step without any.

    Narayanan et al. 2021 mean this by "bubble".

    >>> overhead(p=4, m=8)
    0.375
    """
    return (p - 1) / (v * m)


def microbatches(p: int, below: float, v: int = 1) -> int:
    """The least m whose bubble, as idle over total time, is at most `below`.

    Solve (p - 1) / (v m + p - 1) <= x for m: m >= (p - 1) (1 - x) / (v x).

    >>> microbatches(p=8, below=0.1)
    63
    """
    if not 0 < below < 1:
        raise ValueError(f"below is {below!r}, must lie between 0 and 1")
    x = Fraction(str(below))
    return max(1, ceil((p - 1) * (1 - x) / (v * x)))


def idle(
    schedule: str, p: int, f: float = 1.0, b: float = 1.0, w: float = 1.0, v: int = 2
) -> float:
    """Idle time of one rank in one step, where m is large enough and messages take no time.

    f, b and w are the durations of a whole rank's share of one microbatch. For zb_h2 the clock of
    each rank starts at its own first action, as the paper counts; for all others at time zero.
    The zero-bubble forms hold while w is longer than neither f nor b.
    Qi et al. 2024, table 2; Narayanan et al. 2021, section 2.2. zb_v holds for f = b = w.
    """
    waits = {
        "gpipe": (p - 1) * (f + b + w),
        "one_f_one_b": (p - 1) * (f + b + w),
        "interleaved": (p - 1) * (f + b + w) / v,
        "zb_h1": (p - 1) * (f + b - w),
        "zb_h2": (p - 1) * (f + b - 2 * w),
        "zb_v": (p - 1) * f / 2,
    }
    if schedule not in waits:
        raise ValueError(f"schedule is {schedule!r}, must be one of {', '.join(waits)}")
    return waits[schedule]
