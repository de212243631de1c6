"""The roofline plot: what chips allow over arithmetic intensity, and where operations lie under it.

Both axes are logarithmic, so a bandwidth is a slope of one and a rate is flat. A roof is a chip
at a dtype; a point is work, on the roof where it is predicted and below where it was measured.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, log10
from typing import Any

from weft.draw.chart import DASHES, RING, SMALL, WIDE, Axis, Chart, Key, line
from weft.draw.figure import Figure, Log, measure
from weft.plan.hardware import Chip, from_record, size_of
from weft.plan.roofline import (
    Level,
    Work,
    attainable,
    matmul,
    operation,
    ridge,
    seconds,
    slowest,
    wall,
)
from weft.plan.units import amount, count, quantity

Roofs = Sequence[tuple[Chip, str]]

LINE = 17  # of the table


def _short(value: float) -> str:
    """A count or a rate without its unit, which stands above: 558 G."""
    return quantity(value, "FLOP").removesuffix("FLOP").rstrip()


def intensity(work: Work) -> str:
    """FLOPs per byte in three digits.

    >>> intensity(Work(2, 24)), intensity(Work(4096, 3)), intensity(Work(1, 0))
    ('0.0833', '1,365', 'inf')
    """
    return "inf" if not work.bytes and work.flops else amount(work.intensity, 3)


def of_record(
    record: Any, dtype: str | None = None
) -> tuple[dict[str, Work], list[tuple[Chip, str]], dict[str, float]]:
    """What `svg` and `text` take, from a record of `weft bench roofline`: one dtype's roof.

    Points are the operations at that dtype, or at the one that has most if it is None, with the
    rates that they reached; each is named as `weft roofline` takes it. `record` is a
    weft.bench.record.Record.
    """
    chip = from_record(record)
    reached = [result for result in record.results if result.who == "reached"]
    if dtype is None:
        dtypes = [result.name.partition(" ")[0] for result in reached]
        dtype = max(chip.rates, key=dtypes.count)
    chip.rate(dtype)
    rates = {
        name: result.value
        for result in reached
        for at, _, name in [result.name.partition(" ")]
        if at == dtype
    }
    return {name: operation(name, dtype) for name in rates}, [(chip, dtype)], rates


# --- three walls over a batch ---------------------------------------------------------------------

MOST_ROWS = 2**14
WALLS = {"launch": line(1), "memory": line(2), "compute": line(3, 1.25)}
LONGEST = line(0, 3) | {"stroke_opacity": 0.55}


def rows_svg(side: int, chip: Chip, dtype: str, launch: float, rows: int) -> str:
    """The least time of some rows times a square weight over the rows, by each of three walls.

    The upper edge, drawn thick, is the time; the chosen `rows` are ringed.
    """
    if not 1 <= rows <= MOST_ROWS:
        raise ValueError(f"rows is {rows}, must be from 1 to {MOST_ROWS}")

    def at(m: int) -> dict[str, float]:
        work = matmul(m, side, side, size_of(dtype))
        memory, compute = work.bytes / chip.bandwidth, work.flops / chip.rate(dtype)
        return {"launch": launch, "memory": memory, "compute": compute}

    here, longest = at(rows), max(at(MOST_ROWS).values())
    name, least = max(here.items(), key=lambda item: item[1])
    low = 10.0 ** floor(log10(min(launch, at(1)["memory"]) / 3))
    chart = Chart(
        f"Time of rows times a weight on {chip.name} {dtype}",
        f"Least time over rows, both logarithmic. The launch is level, the bytes nearly so until "
        f"the rows are as many as the weight is wide, the FLOPs rise. At {rows} rows they take "
        f"{', '.join(quantity(time, 's') for time in here.values())}: the wall is {name}.",
        Axis("rows", 1, MOST_ROWS, count, log=True, ticks=[4**k for k in range(8)]),
        Axis("least time", low, 2 * longest, lambda s: quantity(s, "s"), log=True),
        [
            *(Key(name, look) for name, look in WALLS.items()),
            Key("least time", LONGEST),
            Key("chosen", RING, "ring"),
        ],
        upright=True,
    )
    spots = sorted({round(m) for m in chart.spots()})
    for wall_, look in WALLS.items():
        chart.curve([(m, at(m)[wall_]) for m in spots], look)
    chart.curve([(m, max(at(m).values())) for m in spots], LONGEST)
    chart.point(rows, least, f"{rows} rows: {quantity(least, 's')}, {name}")
    chart.ring(rows, least)
    return str(chart.figure)


# --- as a drawing ---------------------------------------------------------------------------------


def svg(
    points: Mapping[str, Work],
    roofs: Roofs,
    rates: Mapping[str, float] | None = None,
    span: tuple[float, float] | None = None,
) -> str:
    """The roofs over intensity with a numbered point for each work, and a table of what they mean.

    `rates` holds FLOP/s that were reached, by the names of `points`: such a point lies where it
    was measured, a line leads up to the first roof. `span` are the least and the largest
    intensity that the axis must reach, so that pictures can share it. Work without FLOPs, or
    without bytes, has no place on the axis and stands in the table alone.
    """
    rates = _checked(points, roofs, rates)
    x, y = _scales(points, roofs, rates, span)
    chart = Chart(
        "Roofline of " + ", ".join(f"{chip.name} {dtype}" for chip, dtype in roofs),
        _describe(points, roofs, rates),
        Axis("FLOPs per byte", *x, _intensity, log=True, ticks=_decades(x)),
        Axis("FLOP/s", *y, _short, log=True, ticks=_decades(y)),
        [Key(_roof_words(*roof), line(i)) for i, roof in enumerate(roofs)],
        below=LINE * (len(points) + bool(points)),
        upright=True,
    )
    for i, roof in enumerate(roofs):
        _roof(chart, *roof, line(i))
    if len(roofs) == 1:
        _sides(chart.figure, *roofs[0], chart.x, chart.y)
    _points(chart.figure, points, roofs, rates, chart.x, chart.y)
    _table(chart.figure, points, roofs, rates, chart.bottom)
    return str(chart.figure)


def levels_svg(levels: Sequence[Level], chip: Chip, dtype: str) -> str:
    """A roof for each level that an operation's bytes pass, and where it lies under each.

    A level has a bandwidth, so a slope, and an intensity, so a point, of its own; all have the
    chip's rate in common. The lowest point is what the operation can reach.
    """
    name, _ = slowest(levels, chip, dtype)
    placed = [
        (at.name, at.work, (replace(chip, name=at.name, bandwidth=at.bandwidth), dtype))
        for at in levels
    ]
    limits = [attainable(work, *roof) for _, work, roof in placed]
    meets = [ridge(*roof) for _, _, roof in placed]
    held = [*meets, *(work.intensity for _, work, _ in placed)]
    x = 10.0 ** floor(log10(min(held) / 3)), 10.0 ** ceil(log10(max(held) * 2))
    y = 10.0 ** floor(log10(min(limits) / 10)), 2 * chip.rate(dtype)
    told = [f"{chip.name} in {dtype}, a roof for each level; {name} takes longest."]
    told += [_row_words(at, work, [roof]) + "." for at, work, roof in placed]
    chart = Chart(
        f"One operation at {len(levels)} levels of {chip.name} {dtype}",
        " ".join(told),
        Axis("FLOPs per byte of that level", *x, _intensity, log=True, ticks=_decades(x)),
        Axis("FLOP/s", *y, _short, log=True, ticks=_decades(y)),
        [Key(_level_words(roof), line(i)) for i, (_, _, roof) in enumerate(placed)],
        below=LINE * (len(levels) + 1),
        upright=True,
    )
    for i, (_, _, (on, _)) in enumerate(placed):
        start = max(x[0], y[0] / on.bandwidth)
        chart.curve([(start, start * on.bandwidth), (meets[i], chip.rate(dtype))], line(i))
    chart.curve([(min(meets), chip.rate(dtype)), (x[1], chip.rate(dtype))], line(0))
    taken = [box for _, _, roof in placed for box in _along(*roof, chart.x, chart.y)]
    spots = [
        (chart.x(work.intensity), chart.y(limit))
        for (_, work, _), limit in zip(placed, limits, strict=True)
    ]
    taken += [(at - 5, spot - 5, at + 5, spot + 5) for at, spot in spots]
    for i, ((at, spot), (mine, work, roof)) in enumerate(zip(spots, placed, strict=True), 1):
        _dot(chart.figure, at, spot, _row_words(mine, work, [roof]))
        _label(chart.figure, str(i), at, spot, taken, chart.x, chart.y)
    _level_table(chart.figure, placed, chart.bottom)
    return str(chart.figure)


def _level_words(roof: tuple[Chip, str]) -> str:
    on, _ = roof
    return f"{on.name}: {quantity(on.bandwidth, 'B/s')}, ridge {amount(ridge(*roof), 3)}"


def _level_table(figure: Figure, placed: Sequence[tuple], top: float) -> None:
    heads = "bytes", "their time", "FLOP/B", "attainable"
    with figure.group(font_size=SMALL):
        for i, head in enumerate(heads):
            figure.words(WIDE - 68 * (3 - i), top + 10, head, text_anchor="end", fill_opacity=0.8)
        for i, (name, work, roof) in enumerate(placed, 1):
            base = top + 10 + LINE * i
            figure.words(0, base, str(i), font_weight="bold")
            figure.words(20, base, name)
            cells = [quantity(work.bytes, "B"), quantity(work.bytes / roof[0].bandwidth, "s")]
            cells += [intensity(work), _short(attainable(work, *roof))]
            for j, cell in enumerate(cells):
                figure.words(WIDE - 68 * (3 - j), base, cell, text_anchor="end")


def _checked(points, roofs, rates) -> Mapping[str, float]:
    if not roofs:
        raise ValueError("roofs is empty, must hold at least one (chip, dtype)")
    for chip, dtype in roofs:
        chip.rate(dtype)
    for name, rate in (rates or {}).items():
        if name not in points:
            raise ValueError(f"rates has {name!r}, must be one of points: {', '.join(points)}")
        if not 0 < rate < float("inf"):
            raise ValueError(f"rates has {rate} for {name!r}, must be above 0 and finite")
    return rates or {}


def _placed(work: Work) -> bool:
    return work.flops > 0 and work.bytes > 0


def _scales(points, roofs, rates, span) -> tuple[tuple[float, float], tuple[float, float]]:
    """Decades that hold the ridges, the points and the span, and the FLOP/s that go along."""
    ridges = [ridge(chip, dtype) for chip, dtype in roofs]
    held = [work.intensity for work in points.values() if _placed(work)]
    least = min(*(r / 30 for r in ridges), *held, *(span or ()), 1.0)
    most = max(*(r * 8 for r in ridges), *held, *(span or ()), 1.0)
    x = 10.0 ** floor(log10(least) + 1e-9), 10.0 ** ceil(log10(most) - 1e-9)
    low = min(chip.bandwidth * x[0] for chip, _ in roofs)
    low = min([low, *(rate / 1.5 for rate in rates.values())])
    top = max(chip.rate(dtype) for chip, dtype in roofs)
    top = max([top, *rates.values()])
    return x, (10.0 ** floor(log10(low) + 1e-9), 2 * top)


def _decades(span: tuple[float, float]) -> Sequence[float]:
    return Log(*span, 0, 1).ticks((1,))


def _intensity(tick: float) -> str:
    """A round intensity: 0.1, 100, 10 k."""
    return _short(tick) if tick >= 1 else amount(tick)


def _roof(chart: Chart, chip: Chip, dtype: str, look: dict) -> None:
    """The roof itself, and a mark where its two walls meet."""
    meet, rate, x = ridge(chip, dtype), chip.rate(dtype), chart.x
    chart.curve([(x.low, x.low * chip.bandwidth), (meet, rate), (x.high, rate)], look)
    foot = {"stroke_dasharray": "1 3", "stroke_opacity": 0.7}
    chart.figure.line(x(meet), chart.y(rate), x(meet), chart.y.start, **foot)


def _roof_words(chip: Chip, dtype: str) -> str:
    rate, bandwidth = quantity(chip.rate(dtype), "FLOP/s"), quantity(chip.bandwidth, "B/s")
    return f"{chip.name} {dtype}: {rate}, {bandwidth}, ridge {amount(ridge(chip, dtype), 3)}"


def _sides(figure: Figure, chip: Chip, dtype: str, x: Log, y: Log) -> None:
    """Which wall is met first, on either side of the ridge."""
    at = x(ridge(chip, dtype))
    look = {"font_size": SMALL, "fill_opacity": 0.8}
    for wall_, anchor, room in (("memory", "end", at - x.start), ("compute", "start", x.stop - at)):
        for side in (f"{wall_}-bound", wall_):
            if measure(side, SMALL) + 8 < room:
                shift = -6 if anchor == "end" else 6
                figure.words(at + shift, y.start - 6, side, text_anchor=anchor, **look)
                break


def _points(figure: Figure, points, roofs: Roofs, rates, x: Log, y: Log) -> None:
    """A dot for each work on each roof, or one where it was measured, and numbers close by."""
    taken = [box for chip, dtype in roofs for box in _along(chip, dtype, x, y)]
    spots = {}
    for i, (name, work) in enumerate(points.items(), 1):
        if _placed(work):
            reached = rates.get(name)
            limits = [attainable(work, *roof) for roof in roofs[: 1 if reached else None]]
            tip = _row_words(name, work, roofs, reached)
            at, lowest = x(work.intensity), y(reached or min(limits))
            for limit in limits:
                _dot(figure, at, y(limit), tip, hollow=bool(reached))
            if reached:
                figure.line(at, y(limits[0]) + 4, at, lowest, stroke_opacity=0.6)
                _dot(figure, at, lowest, tip)
            spots[str(i)] = at, lowest
            taken += [(at - 5, y(r) - 5, at + 5, y(r) + 5) for r in (*limits, reached or limits[0])]
    for text, (at, lowest) in spots.items():
        _label(figure, text, at, lowest, taken, x, y)


def _dot(figure: Figure, at: float, spot: float, tip: str, hollow: bool = False) -> None:
    """Hollow where something could be and is not; no hue, since the book's hues are actions."""
    look = {"fill": "none" if hollow else "currentColor", "stroke": "currentColor"}
    figure.mark("circle", cx=at, cy=spot, r=3.5, tip=tip, stroke_width=1.25, **look)


def _along(chip: Chip, dtype: str, x: Log, y: Log) -> Iterator[tuple]:
    """Small boxes that cover a roof, so that no number is written across it."""
    for at in range(round(x.start), round(x.stop), 6):
        i = x.at((at - x.start) / (x.stop - x.start))
        spot = y(min(chip.rate(dtype), i * chip.bandwidth))
        yield at - 3, spot - 2, at + 3, spot + 2


def _label(figure: Figure, text: str, at: float, spot: float, taken: list, x: Log, y: Log) -> None:
    """A number where nothing stands yet, below its point if there is room, else further off."""
    wide = 7 * len(text) + 2
    places = [
        (at + right, spot + down)
        for reach in (1, 1.9, 2.8, 3.7)
        for right, down in (
            (9 * reach, 11 * reach), (0, 14 * reach), (-9 * reach, 11 * reach),
            (12 * reach, 2), (0, -12 * reach), (-11 * reach, -8 * reach), (11 * reach, -8 * reach),
        )
    ]  # fmt: skip

    def cost(place: tuple[float, float]) -> float:
        box = place[0] - wide / 2, place[1] - 6, place[0] + wide / 2, place[1] + 6
        hits = sum(_overlap(box, other) for other in taken)
        inside = x.start < box[0] and box[2] < x.stop + 10 and y.stop < box[1] and box[3] < y.start
        return hits + (0 if inside else 3)

    best = min(places, key=cost)
    taken.append((best[0] - wide / 2, best[1] - 6, best[0] + wide / 2, best[1] + 6))
    if abs(best[0] - at) + abs(best[1] - spot) > 24:
        figure.line(at, spot, *best, stroke_opacity=0.4, stroke_width=1)
    look = {"text_anchor": "middle", "font_size": SMALL, "font_weight": "bold"}
    figure.words(best[0], best[1] + 4, text, **look)


def _overlap(a: tuple, b: tuple) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _table(figure: Figure, points, roofs, rates, top: float) -> None:
    """A line for each point: its number, its name, and what the plot says about it."""
    if not points:
        return
    heads, rows = _cells(points, roofs, rates)
    step = 64 if len(roofs) == 1 else 54
    columns = [WIDE - step * (len(heads) - 1 - i) for i in range(len(heads))]
    room = WIDE - step * len(heads) - 20
    with figure.group(font_size=SMALL):
        for column, head in zip(columns, heads, strict=True):
            if head in DASHES:
                look = {"stroke_width": 2, "stroke_dasharray": head}
                figure.line(column - 30, top + 6, column, top + 6, **look)
            else:
                figure.words(column, top + 10, head, text_anchor="end", fill_opacity=0.8)
        for i, (name, *cells) in enumerate(rows, 1):
            base = top + 10 + LINE * i
            figure.words(0, base, str(i), font_weight="bold")
            figure.words(20, base, _fitting(name, room))
            for column, cell in zip(columns, cells, strict=True):
                figure.words(column, base, cell, text_anchor="end")


def _fitting(name: str, room: float) -> str:
    if measure(name, SMALL) <= room:
        return name
    while name and measure(name + "…", SMALL) > room:
        name = name[:-1]
    return name.rstrip() + "…"


def _cells(points, roofs: Roofs, rates) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table; each of several roofs has its dash for a head."""
    one = len(roofs) == 1
    heads = ["FLOP/B", *(["attainable"] if one else DASHES[: len(roofs)])]
    heads += ["reached"] if rates else ["wall"] if one else []
    rows = []
    for name, work in points.items():
        limits = [_short(attainable(work, *roof)) for roof in roofs[: len(DASHES)]]
        cells = [name, intensity(work), *limits]
        if rates:
            cells.append(_short(rates[name]) if name in rates else "–")
        elif one:
            cells.append(wall(work, *roofs[0]))
        rows.append(cells)
    return heads, rows


def _row_words(name: str, work: Work, roofs: Roofs, reached: float | None = None) -> str:
    limits = " or ".join(quantity(attainable(work, *roof), "FLOP/s") for roof in roofs)
    walls = " or ".join(wall(work, *roof) for roof in roofs)
    told = f"{name}: {intensity(work)} FLOPs per byte, attainable {limits}, bound by {walls}"
    return told + (f", reached {quantity(reached, 'FLOP/s')}" if reached else "")


def _describe(points, roofs: Roofs, rates) -> str:
    told = ["FLOP/s over FLOPs per byte, both logarithmic: each roof rises and then is flat."]
    told += [_roof_words(chip, dtype) + "." for chip, dtype in roofs]
    told += [_row_words(name, work, roofs, rates.get(name)) + "." for name, work in points.items()]
    return " ".join(told)


# --- in characters --------------------------------------------------------------------------------


def text(
    points: Mapping[str, Work],
    roofs: Roofs,
    rates: Mapping[str, float] | None = None,
    width: int = 100,
) -> str:
    """The same plot in characters, lines of at most `width`, above a table in full.

    Slopes are "/", flat roofs "-", or "=" for the second; a point is the mark of its row, "*"
    where two share a place.
    """
    rates = _checked(points, roofs, rates)
    if width < 40:
        raise ValueError(f"width is {width}, must be at least 40")
    spans = _scales(points, roofs, rates, None)
    columns = min(width, 88) - 8
    x = Log(*spans[0], 0, columns - 1)
    rows = max(8, round(columns / (log10(x.high / x.low)) * log10(spans[1][1] / spans[1][0]) / 3))
    y = Log(*spans[1], min(rows, 20), 0)
    grid = [[" "] * columns for _ in range(round(y.start) + 1)]
    for i, (chip, dtype) in reversed(list(enumerate(roofs))):
        _roof_characters(grid, chip, dtype, x, y, "-=~"[i % 3])
    for i, (name, work) in enumerate(points.items(), 1):
        if _placed(work):
            spot = rates.get(name) or attainable(work, *roofs[0])
            row, column = round(y(spot)), round(x(work.intensity))
            grid[row][column] = _mark(i) if grid[row][column] in " /-=~" else "*"
    tens = _decades(spans[1])
    labels = {round(y(tick)): _short(tick) for tick in tens[:: ceil(len(tens) / len(grid))]}
    lines = [f"{labels.get(i, ''):>6} |{''.join(row).rstrip()}" for i, row in enumerate(grid)]
    lines.append(" " * 7 + "+" + "-" * columns)
    lines.append((" " * 8 + _ticks(x, columns)).rstrip())
    lines = ["FLOP/s over FLOPs per byte", *lines, ""]
    lines += [_roof_words(chip, dtype) for chip, dtype in roofs]
    return "\n".join([*lines, *_rows(points, roofs, rates)])


def _mark(i: int) -> str:
    """One character for a row: 1 to 9, then a to z and round again."""
    return str(i) if i < 10 else chr(ord("a") + (i - 10) % 26)


def _roof_characters(grid, chip: Chip, dtype: str, x: Log, y: Log, flat: str) -> None:
    for column in range(len(grid[0])):
        at = x.at(column / x.stop)
        slope = at < ridge(chip, dtype)
        row = round(y(min(chip.rate(dtype), at * chip.bandwidth)))
        if 0 <= row < len(grid):
            grid[row][column] = "/" if slope else flat


def _ticks(x: Log, columns: int) -> str:
    line = ""
    for tick in x.ticks((1,)):
        label = _intensity(tick)
        start = round(x(tick))
        if len(line) < start + (not line) and start + len(label) <= columns:
            line = line.ljust(start) + label
    return line


def _rows(points, roofs: Roofs, rates) -> list[str]:
    """The table in characters: work, intensity, and on each roof the limit, least time and wall."""
    if not points:
        return []
    heads = ["", "operation", "FLOPs", "bytes", "FLOP/B", *(["reached"] if rates else [])]
    for _chip, _ in roofs:
        heads += ["attainable", "least time", "wall"]
    rows = []
    for i, (name, work) in enumerate(points.items(), 1):
        cells = [
            _mark(i),
            name,
            _short(work.flops),
            quantity(work.bytes, "B"),
            intensity(work),
        ]
        cells += [quantity(rates[name], "FLOP/s") if name in rates else "–"] if rates else []
        for roof in roofs:
            limit, least = attainable(work, *roof), seconds(work, *roof)
            cells += [quantity(limit, "FLOP/s"), quantity(least, "s"), wall(work, *roof)]
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    left = {1, *(i for i, head in enumerate(heads) if head == "wall")}
    return [
        "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in cells).rstrip()
        for cells in (enumerate(zip(row, widths, strict=True)) for row in (heads, *rows))
    ]
