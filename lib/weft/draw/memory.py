"""What a device holds, as bars: states, activations, what comes and goes, and what is left."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Colour, Figure, Scale, dashed, measure, number
from weft.plan.hardware import Chip
from weft.plan.memory import RESERVE, STAGES, activations, model_states, parameters, passing
from weft.plan.shape import ModelShape
from weft.plan.units import amount, prefixed

WIDE, BAR, STEP = 480, 22, 32
FURTHEST = 2.5  # times the largest memory: where bars are cut off
WEIGHTS = Colour("weft-weights", "#77AADD")
GRADIENTS = Colour("weft-gradients", "#EEDD88")
OPTIMIZER = Colour("weft-optimizer", "#EE8866")
ACTIVATIONS = Colour("weft-activations", "#BBCC33")
TEMPORARY = Colour("weft-temporary", "#BBBBBB")
WAYS = (  # what it is called, whether by sequence parallelism, and what is computed again
    ("all kept", False, "none"),
    ("sequence parallel", True, "none"),
    ("no scores kept", False, "selective"),
    ("both", True, "selective"),
    ("layers' inputs", False, "full"),
)
LEFT_OVER = dashed("3 3", 0.45)


class Kept(NamedTuple):
    """Bytes on a device when there are most, by what they are; `temporary` ones come and go."""

    weights: float
    gradients: float
    optimizer: float
    activations: float = 0
    temporary: float = 0


HUES = WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, TEMPORARY
LOOKS = dict(zip(Kept._fields, HUES, strict=True))


def kept(
    shape: ModelShape,
    d: int,
    stage: int,
    microbatch: int = 1,
    t: int = 1,
    p: int = 1,
    **how: object,
) -> Kept:
    """What the fullest of d t p devices has at once; `how` goes to `activations`.

    What comes and goes is counted for p = 1 only.

    >>> from weft.plan.shape import SHAPES
    >>> row = kept(SHAPES["gpt-7.5b"], 64, 3, recompute="full")
    >>> [f"{nbytes / 1e9:.1f}" for nbytes in (sum(row), row.temporary)]
    ['5.1', '2.6']
    """
    states = model_states(parameters(shape, t, p), d, stage)
    between = activations(shape, microbatch, t, p, **how)
    moments = passing(shape, microbatch, stage, t, reserve=0, **how).total if p == 1 else 0
    return Kept(states.weights, states.gradients, states.optimizer, between, moments)


def stages_svg(
    shape: ModelShape, d: int, chips: Sequence[Chip] = (), title: str = "", **how: object
) -> str:
    """A bar for each stage of ZeRO, of the fullest device, with a reserve; `how` goes to `kept`."""
    rows = {f"stage {stage}": kept(shape, d, stage, **how) for stage in STAGES}
    title = title or f"One of {d} devices under each stage of ZeRO"
    return bars_svg(rows, chips, title, reserve=RESERVE)


def activations_svg(shape: ModelShape, microbatch: int, t: int, chips: Sequence[Chip] = ()) -> str:
    """A bar for each way of keeping activations on one of t tensor parallel devices."""
    rows = {}
    for name, sequence, recompute in WAYS:
        how = {"sequence_parallel": sequence, "recompute": recompute}
        rows[name] = Kept(0, 0, 0, activations(shape, microbatch, t, **how))
    return bars_svg(rows, chips, f"Activations of {shape.layers} layers, one of {t} devices")


def bars_svg(
    rows: Mapping[str, Kept | Sequence[float]],
    chips: Sequence[Chip] = (),
    title: str = "What a device keeps",
    binary: bool = False,
    reserve: float = 0.0,
) -> str:
    """A stacked bar for each row, its total behind it, and a line at each chip's memory.

    What the first chip has left is dashed. Bars that go far beyond the largest memory are cut off,
    at a zigzag. Sizes are in GB, or in GiB if `binary`; far smaller ones in MB or MiB, and so on.
    With a `reserve` a bar fits if so many bytes of the chip stay free, beyond a dashed line.
    """
    rows = {name: Kept(*row) for name, row in rows.items()}
    if not reserve >= 0:
        raise ValueError(f"reserve is {reserve!r}, must be bytes, at least 0")
    _check(rows, chips)
    tell = _teller(max(map(sum, rows.values())), binary)
    end = max(map(sum, rows.values()), default=1.0) or 1.0
    if chips:
        most = max(chip.memory for chip in chips)
        end = max(min(end, FURTHEST * most), 1.12 * most)
    left = 12 + max(map(measure, rows))
    right = 10 + max(measure(tell(sum(row))) for row in rows.values())
    x = Scale(0, end, left, WIDE - right)
    limits = {chip: max(0.0, chip.memory - reserve) for chip in chips}
    lines = _legend(rows, limits)
    names = 14 + 16 * len(lines)
    top = names + 4 + 16 * len(chips)
    high = top + STEP * len(rows) + 2
    told = _describe(rows, limits, tell, reserve)
    figure = Figure.small(WIDE, high, title, told)
    for i, keys in enumerate(lines):
        svg.legend(figure, keys, 14 + 17 * i)
    for i, (name, row) in enumerate(rows.items()):
        _bar(figure, name, row, limits, x, top + STEP * i, tell)
    _capacities(figure, limits, x, names, high, tell)
    return str(figure)


def _check(rows: Mapping[str, Kept], chips: Sequence[Chip]) -> None:
    if not rows:
        raise ValueError("rows is empty, must have one bar at least")
    for name, row in rows.items():
        if min(row) < 0:
            raise ValueError(f"rows has {min(row)!r} bytes in {name!r}, must be at least 0")
    for chip in chips:
        if not chip.memory > 0:
            raise ValueError(f"chips has {chip.name}, whose memory is not known")


def _teller(most: float, binary: bool):
    """How sizes are written: in the unit that suits the largest but for thousands of GB."""
    size, unit = prefixed(min(most, 999 * (2**30 if binary else 1e9)), "B", binary)

    def tell(nbytes: float) -> str:
        return f"{amount(nbytes / size, 3)} {unit}"

    return tell


Limits = Mapping[Chip, float]  # what of each chip's memory may be used


def _legend(rows: Mapping[str, Kept], limits: Limits) -> list[list[svg.Key]]:
    """The parts that occur, and what is left where there is a chip; in two lines if need be."""
    keys = [
        (name, LOOKS[name].paint() | OUTLINE)
        for name in Kept._fields
        if any(getattr(row, name) for row in rows.values())
    ]
    if limits and any(sum(row) < next(iter(limits.values())) for row in rows.values()):
        keys.append(("left", LEFT_OVER))
    return [keys] if svg.legend_width(keys) <= WIDE else [keys[:3], keys[3:]]


def _bar(figure: Figure, name: str, row: Kept, limits: Limits, x: Scale, y: float, tell) -> None:
    """One bar: its parts from left to right, what is left of the first chip, and the total."""
    figure.words(0, y + 15, name)
    now = 0.0
    for part, nbytes in row._asdict().items():
        start, stop = x(min(now, x.high)), x(min(now + nbytes, x.high))
        now += nbytes
        if stop > start:
            box = {"x": start, "y": y, "width": stop - start, "height": BAR}
            tip = f"{name}: {part} {tell(nbytes)}"
            figure.mark("rect", **box, **LOOKS[part].paint(), **OUTLINE, tip=tip)
    chip, limit = next(iter(limits.items()), (None, 0.0))
    if now < limit:
        box = {"x": x(now), "y": y, "width": x(limit) - x(now), "height": BAR}
        tip = f"{name}: {tell(limit - now)} left of {chip.name}"
        figure.mark("rect", **box, **LEFT_OVER, pointer_events="all", tip=tip)
    if now > x.high:
        _cut(figure, x.stop - 9, y)
    start = max(min(now, x.high), limit)
    figure.words(_clear(start, tell(now), limits, x), y + 15, tell(now))


def _clear(start: float, label: str, limits: Limits, x: Scale) -> float:
    """Where a label behind a bar may begin such that no chip's line runs through it."""
    at = x(start) + 6
    lines = {x(chip.memory) for chip in limits} | set(map(x, limits.values()))
    for line in sorted(lines):
        if at - 6 < line < at + measure(label) + 2:
            at = line + 6
    return at


def _cut(figure: Figure, at: float, y: float) -> None:
    """A zigzag through a bar that is longer than the picture."""
    steps = [(at + (4 if i % 2 else 0), y - 3 + i * (BAR + 6) / 6) for i in range(7)]
    path = "L".join(f"{number(px)} {number(py)}" for px, py in steps)
    look = {"fill": "none", "stroke": "currentColor", "stroke_width": 2}
    figure.mark("path", d=f"M{path}", **look)


def _capacities(figure: Figure, limits: Limits, x: Scale, top: float, bottom: float, tell) -> None:
    """A line at each chip's memory, dashed where its reserve begins; the names stand above."""
    for i, (chip, limit) in enumerate(limits.items()):
        at, y = x(chip.memory), top + 16 * i
        label = f"{chip.name} {tell(chip.memory)}"
        figure.line(at, y + 4, at, bottom, stroke_width=1.5)
        if limit < chip.memory:
            figure.line(x(limit), y + 4, x(limit), bottom, stroke_dasharray="4 3")
        room = measure(label, 11) / 2
        middle = min(max(at, room), WIDE - room)
        figure.words(middle, y, label, font_size=11, text_anchor="middle")


def _describe(rows: Mapping[str, Kept], limits: Limits, tell, reserve: float) -> str:
    told = ["A stacked bar for each row."]
    for name, row in rows.items():
        parts = [f"{part} {tell(n)}" for part, n in row._asdict().items() if n]
        total = sum(row)
        what = f"{name}: {', '.join(parts)}, {tell(total)} in all"
        fits = [chip.name for chip, limit in limits.items() if total <= limit]
        if limits:
            what += f"; fits {', '.join(fits)}" if fits else "; fits none"
        told.append(what + ".")
    kept = f", of which {tell(reserve)} are kept in reserve" if reserve else ""
    told += [f"{chip.name} has {tell(chip.memory)}{kept}." for chip in limits]
    return " ".join(told)
