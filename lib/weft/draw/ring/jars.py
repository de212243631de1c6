"""Softmax in parts: two jars, each an average with its weight, and what pouring them gives."""

from collections.abc import Sequence
from itertools import accumulate

from weft.draw.figure import INK, OUTLINE, Figure
from weft.draw.zero import HUES

Layer = tuple[int, int]  # e to the score of a key, and the key's value
PARTS: tuple[tuple[Layer, ...], ...] = (((2, 10), (1, 40)), ((4, 5), (1, 25)))
UNIT, TOP, WIDE, GAP = 22, 40, 82, 34


def poured(jar: Sequence[Layer]) -> tuple[float, float]:
    """A jar's weight, and the average of its values.

    >>> poured([(2, 10), (1, 40)])
    (3, 20.0)
    """
    weight = sum(high for high, _ in jar)
    return weight, sum(high * value for high, value in jar) / weight


def jars_svg() -> str:
    """Each key is a layer as high as e to its score; the whole is both jars on top of each other.

    Below a jar: its weight, whose logarithm is the log-sum-exp, and the average of its values.
    """
    jars = [*PARTS, tuple(layer for part in PARTS for layer in part)]
    floor = TOP + UNIT * max(poured(jar)[0] for jar in jars)
    figure = Figure.small(
        3 * WIDE + 2 * GAP + 26, floor + 58, "Softmax in parts: two jars and both poured together",
        _describe(jars), largest=1.4,
    )  # fmt: skip
    names = ("keys of rank 0", "keys of rank 1", "all keys")
    owners = ([0, 0], [1, 1], [0, 0, 1, 1])
    for i, (name, jar, owner) in enumerate(zip(names, jars, owners, strict=True)):
        left = 12 + i * (WIDE + GAP)
        figure.words(left + WIDE / 2, TOP - 22, name, text_anchor="middle", font_weight="bold")
        _jar(figure, left, floor, jar, owner)
        weight, mean = poured(jar)
        with figure.group(text_anchor="middle"):
            figure.words(left + WIDE / 2, floor + 20, f"weight {weight:g}")
            figure.words(left + WIDE / 2, floor + 38, f"average {mean:g}")
        if i < 2:
            sign = "+="[i]
            figure.words(left + WIDE + GAP / 2, floor + 29, sign, text_anchor="middle")
    return str(figure)


def _jar(figure: Figure, left: float, floor: float, jar: Sequence[Layer], owner) -> None:
    ends = accumulate(high for high, _ in jar)
    for (high, value), end, rank in zip(jar, ends, owner, strict=True):
        y = floor - UNIT * end
        tip = f"weight {high}, value {value}"
        box = {"x": left, "y": y, "width": WIDE, "height": UNIT * high}
        figure.mark("rect", **box, **HUES[rank].paint(), **OUTLINE, tip=tip)
        middle = y + UNIT * high / 2 + 4
        look = {"text_anchor": "middle", "fill": INK, "font_size": 11}
        figure.words(left + WIDE / 2, middle, f"{high} × value {value}", **look)
    sides = f"M{left - 3} {TOP - 10}V{floor + 2}H{left + WIDE + 3}V{TOP - 10}"
    figure.mark("path", d=sides, fill="none", stroke="currentColor", stroke_width=2)


def _describe(jars) -> str:
    first, second, both = (poured(jar) for jar in jars)
    return (
        f"Three jars with a layer for each key, as high as its weight. The first weighs "
        f"{first[0]:g} and averages {first[1]:g}, the second weighs {second[0]:g} and averages "
        f"{second[1]:g}. The third holds the layers of both: it weighs {both[0]:g} and averages "
        f"{both[1]:g}, which is ({first[0]:g} × {first[1]:g} + {second[0]:g} × {second[1]:g}) / "
        f"{both[0]:g}."
    )
