"""What the first and the last rank of 1F1B keep: microbatches under way, times layers."""

from weft.draw.figure import FORWARD, OUTLINE, Figure
from weft.plan.arguments import whole
from weft.plan.pipeline import one_f_one_b
from weft.plan.simulate import simulate

UNIT, GAP, LEFT, TOP, BELOW = 12, 22, 68, 26, 16


def kept_svg(layers: int = 8) -> str:
    """A box for each layer and microbatch that a rank keeps at its fullest, as p doubles.

    Columns are the layers of a rank, rows the microbatches that it has under way. Rank 0 is
    above, rank p - 1 below. `layers` is a power of two.
    """
    layers = whole("layers", layers, least=2, most=16)
    if layers & (layers - 1):
        raise ValueError(f"layers is {layers}, must be a power of two: p doubles until it is that")
    degrees = [2**i for i in range(layers.bit_length())]
    columns = [max(layers // p * UNIT, 34) for p in degrees]
    width = LEFT + sum(columns) + GAP * (len(degrees) - 1) + 4
    second = TOP + layers * UNIT + BELOW
    figure = Figure.small(
        width, second + UNIT + 6, f"Activations of {layers} layers under 1F1B",
        _describe(degrees, layers), largest=1.5,
    )  # fmt: skip
    figure.words(0, TOP + UNIT - 2, "rank 0")
    figure.words(0, second + UNIT - 2, "rank p − 1")
    x = LEFT
    for p, wide in zip(degrees, columns, strict=True):
        peaks = peak(p)
        figure.words(x, 14, f"p = {p}", font_weight="bold")
        for rank, top in ((0, TOP), (-1, second)):
            boxes = [
                (x + column * UNIT, top + row * UNIT, UNIT - 1, UNIT - 1)
                for row in range(peaks[rank])
                for column in range(layers // p)
            ]
            figure.boxes(boxes, **FORWARD.paint(), **OUTLINE)
        x += wide + GAP
    return str(figure)


def peak(p: int) -> tuple[int, ...]:
    """Microbatches that each rank of 1F1B has under way at its fullest, if m is not too small.

    >>> peak(4)
    (4, 3, 2, 1)
    """
    return simulate(one_f_one_b(p, 2 * p)).peak_live


def _describe(degrees: list[int], layers: int) -> str:
    return " ".join(
        f"With p = {p}, rank 0 keeps {peak(p)[0]} microbatches of {layers // p} layers, "
        f"{peak(p)[0] * layers // p} boxes, and the last rank {peak(p)[-1] * layers // p}."
        for p in degrees
    )
