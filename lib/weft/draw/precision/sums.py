"""A weight under small updates, and which numbers an outlier shares its scale with."""

from weft.draw.figure import OUTLINE, Colour, Figure, Scale, legend, number
from weft.draw.precision.formats import EXPONENT, LOST, told
from weft.plan.arguments import chosen, sizes, whole
from weft.plan.precision import WAYS, Format, summed

WIDE, HIGH = 480, 180
MANY = 100  # paths of stochastic rounding in their mean
OUTLIER = Colour("weft-outlier", "#CC6677")
NAMES = {
    "exact": "fp32 master",
    "nearest": "nearest",
    "kahan": "Kahan's sum",
    "stochastic": "stochastic",
}
LINES = {
    "nearest": Colour("weft-nearest", "#CC6677"),
    "kahan": Colour("weft-kahan", "#44AA99"),
    "stochastic": Colour("weft-chance", "#999933"),
}


def sums_svg(format: Format, start: float, update: float, steps: int, seed: int = 0) -> str:
    """The weight after each update, by each of WAYS; lines across are the format's numbers.

    Of stochastic rounding one path is drawn, and dotted the mean of MANY.
    """
    found = {way: [start, *summed(format, start, update, steps, way, seed)] for way in WAYS}
    paths = [summed(format, start, update, steps, "stochastic", seed + i) for i in range(MANY)]
    mean = [start, *(sum(at) / MANY for at in zip(*paths, strict=True))]
    values = [value for walk in found.values() for value in walk]
    gap = format.spacing(start)
    low, high = min(values) - gap / 2, max(values) + gap / 2
    x, y = Scale(0, steps, 60, WIDE - 8), Scale(low, high, 44 + HIGH, 44)
    figure = Figure.small(
        WIDE,
        HIGH + 84,
        f"{steps} updates of {told(update)} to a weight of {told(start)} in {format.name}",
        _describe(format, found),
        largest=1.3,
    )
    plain = {"fill": "currentColor", "height": 3}
    keys = [(NAMES[way], LINES[way].paint() | {"height": 6}) for way in LINES]
    legend(figure, [(NAMES["exact"], plain), *keys])
    level, told_at = start, y.start + 20
    with figure.group(text_anchor="end", font_size=11):
        while level < high:
            figure.line(x.start, y(level), x.stop, y(level), stroke_opacity=0.2)
            if told_at - y(level) >= 20:
                figure.words(x.start - 4, y(level) + 4, f"{level:.6g}")
                told_at = y(level)
            level += gap
    for way, walk in found.items():
        outline = f"M{number(x(0))} {number(y(walk[0]))}"
        for i, value in enumerate(walk[1:], 1):
            outline += f"H{number(x(i))}V{number(y(value))}"
        look = LINES[way].stroke(2.5) if way in LINES else {"stroke": "currentColor"}
        figure.mark("path", d=outline, fill="none", **look)
    points = [f"{number(x(i))} {number(y(value))}" for i, value in enumerate(mean)]
    dotted = LINES["stochastic"].stroke(2) | {"stroke_dasharray": "2 3"}
    figure.mark("path", d="M" + "L".join(points), fill="none", **dotted)
    with figure.group(text_anchor="middle", font_size=11):
        for tick in x.ticks(6):
            figure.words(x(tick), 44 + HIGH + 16, str(tick))
        figure.words((x.start + x.stop) / 2, 44 + HIGH + 34, "updates")
    return str(figure)


def _describe(format: Format, found: dict[str, list[float]]) -> str:
    ends = ", ".join(f"{NAMES[way]} at {told(walk[-1])}" for way, walk in found.items())
    return f"Staircases of one weight in {format.name}. They end: {ends}."


# --- who shares a scale ---------------------------------------------------------------------------

SHARED = {
    "tensor": "one scale for the tensor",
    "row": "per row: torchao",
    "tile": "per 4 × 4: weights",
    "block": "per 1 × 4: activations",
}


def sharing_svg(rows: int = 8, columns: int = 16, side: int = 4) -> str:
    """One outlier in a matrix, and what is rounded with its scale, by how far a scale reaches."""
    sizes(rows=rows, columns=columns, side=side)
    whole("side", side, most=min(rows, columns))
    cell, gap, top = 13, 24, 26
    wide, high = columns * cell, rows * cell
    figure = Figure.small(
        max(2 * wide + gap + 2, 400),
        top + 2 * (high + 40),
        "What shares the outlier's scale",
        _said(rows, columns, side),
        largest=1.3,
    )
    look = {
        "outlier": OUTLIER.paint(),
        "with": LOST.paint(white=0.4),
        "own": EXPONENT.paint(white=0.65),
    }
    legend(
        figure,
        [
            ("outlier", look["outlier"] | OUTLINE),
            ("rounded by its scale", look["with"] | OUTLINE),
            ("by another", look["own"] | OUTLINE),
        ],
    )
    at = rows // 2 - 1, columns // 2 + 1
    for i, (kind, name) in enumerate(SHARED.items()):
        left, y = 1 + i % 2 * (wide + gap), top + i // 2 * (high + 40)
        figure.words(left, y + 12, name.replace("4", str(side)), font_size=12)
        boxes: dict[str, list] = {"own": [], "with": [], "outlier": []}
        for row in range(rows):
            for column in range(columns):
                is_it = "outlier" if (row, column) == at else None
                who = is_it or ("with" if shares(kind, at, (row, column), side) else "own")
                boxes[who].append((left + column * cell, y + 18 + row * cell, cell, cell))
        for who, where in boxes.items():
            figure.boxes(where, **look[who], **OUTLINE)
    return str(figure)


def shares(kind: str, one: tuple[int, int], other: tuple[int, int], side: int) -> bool:
    """Whether two places of a matrix have the same scale."""
    chosen("kind", kind, SHARED)
    (row, column), (its_row, its_column) = one, other
    if kind == "tensor":
        return True
    if kind == "tile":
        return (row // side, column // side) == (its_row // side, its_column // side)
    return row == its_row and (kind == "row" or column // side == its_column // side)


def _said(rows: int, columns: int, side: int) -> str:
    counts = rows * columns - 1, columns - 1, side * side - 1, side - 1
    said = [
        f"{name.replace('4', str(side))}: {n}"
        for name, n in zip(SHARED.values(), counts, strict=True)
    ]
    return f"Four {rows} by {columns} grids with one outlier. With its scale {', '.join(said)}."
