"""The schedule grid: a row per rank, time to the right, a coloured cell for each action."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from statistics import median

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure, Scale, measure
from weft.plan.schedule import COMPUTE, Plan
from weft.plan.simulate import Span, Timeline
from weft.plan.units import amount, moment, percent, prefixed

NAMES = {
    "gpipe": "GPipe",
    "one_f_one_b": "1F1B",
    "interleaved": "Interleaved 1F1B",
    "zb_h1": "ZB-H1",
    "zb_h2": "ZB-H2",
    "zb_v": "ZB-V",
    "dualpipe_v": "DualPipeV",
    "dualpipe": "DualPipe",
}
COLOURS = {"F": svg.FORWARD, "B": svg.INPUT_GRADIENT, "W": svg.WEIGHT_GRADIENT}
MEANINGS = {"F": "forward", "B": "input gradient", "W": "weight gradient"}
ROW, CELL = 26, 22  # from one rank to the next, and the height of a cell
CELL_FONT = 11
TOP, AXIS = 26, 24  # room for the legend above and the time axis below
WIDEST = 720  # a column of text: what is wider has to be scrolled or asked for
PHONE = 320  # what a phone shows of a page without scrolling
THINNEST = 3  # cells narrower than this lose their outlines and tips
CROWDED = 0.5  # and narrower than this they are drawn on whole columns


def grid(
    timeline: Timeline,
    width: int = WIDEST,
    until: float = 0.0,
    unit: str = "",
    b_share: float | None = None,
    tips: bool = True,
) -> str:
    """The schedule grid of a timeline as SVG.

    BW is drawn as its B part and then its W part; `b_share` is B's share of it, by default what
    the split backwards of the timeline say, or a half. The axis reaches to `until` at least, so
    that pictures can share a scale. `unit` "s" labels a measured timeline in seconds. Without
    `tips` the cells do not answer to hovering, which halves the picture's size.
    """
    plan = timeline.plan
    left = margin(plan.p)
    right = margin_right([timeline], unit)
    x = time_scale([timeline], width - left - right, left, until)
    bottom = TOP + plan.p * ROW
    legend = keys([timeline])
    wide = max(x.stop + right, svg.legend_width(legend))
    title = f"Schedule {name(plan)}"
    drawn = figure(width, wide, bottom + AXIS, title, describe(timeline, unit))
    svg.legend(drawn, legend)
    svg.time_axis(drawn, x, TOP, bottom, timeline.makespan, unit)
    rows(drawn, timeline, x, TOP, unit, b_share, tips)
    return str(drawn)


def figure(asked: int, wide: float, high: float, title: str, description: str) -> Figure:
    """A figure `wide` units wide; one that was `asked` to be narrow may be scaled up by a page."""
    if asked >= WIDEST:
        return Figure(wide, high, title, description)
    least, largest = min(0.72 * wide, PHONE), min(1.5 * wide, WIDEST)
    return Figure(wide, high, title, description, least, largest)


def name(plan: Plan) -> str:
    """What the papers call a schedule, with its sizes.

    >>> from weft.plan.pipeline import interleaved
    >>> name(interleaved(p=2, m=4, v=3))
    'Interleaved 1F1B, p = 2, m = 4, v = 3'
    """
    sizes = f"p = {plan.p}, m = {plan.m}" + (f", v = {plan.v}" if plan.v > 1 else "")
    return f"{NAMES.get(plan.name, plan.name)}, {sizes}"


def margin(p: int) -> float:
    """Room for the rank labels."""
    return round(measure(f"rank {p - 1}")) + 12


def margin_right(timelines: Sequence[Timeline], unit: str) -> float:
    """Room for the half of the last time label that hangs over."""
    labels = (moment(t.makespan, unit, t.makespan) for t in timelines)
    return max(12, *(round(measure(label) / 2) + 4 for label in labels))


def time_scale(
    timelines: Sequence[Timeline], room: float, left: float, until: float = 0.0
) -> Scale:
    """From time to x: a typical cell 20 wide, less where `room` is short, all of it if `until`."""
    end = max([until, *(timeline.makespan for timeline in timelines)]) or 1.0
    if until:
        each = room / end
        return Scale(0, end, left, left + end * (int(each) if each > 4 else each))
    lengths = [s.end - s.start for t in timelines for s in t.spans if s.computes]
    typical = min((median(lengths) if lengths else end) or end, end)
    shortest = min((length for length in lengths if length > typical / 4), default=typical)
    each = min(20 / shortest, room / end)
    if each * shortest > 4 and end / shortest < room:
        each = int(each * shortest) / shortest  # whole coordinates are shorter
    return Scale(0, end, left, left + max(each * end, min(room, 300)))


def rows(
    figure: Figure,
    timeline: Timeline,
    x: Scale,
    top: float,
    unit: str = "",
    b_share: float | None = None,
    tips: bool = True,
) -> None:
    """The ranks of one timeline: labels, tracks, cells, messages, numbers."""
    plan = timeline.plan
    share = split(timeline) if b_share is None else b_share
    for rank in range(plan.p):
        figure.words(0, top + rank * ROW + 17, f"rank {rank}")
    tracks = [(x(0), top + r * ROW + 2, x(timeline.makespan) - x(0), CELL) for r in range(plan.p)]
    figure.boxes(tracks, fill_opacity=0.06)
    _fills(figure, timeline, x, top, share, outlined=not tips)
    _outlines(figure, timeline, x, top, unit, tips)
    _messages(figure, timeline, x, top, unit)
    _numbers(figure, timeline, x, top, share)


def _fills(
    figure: Figure, timeline: Timeline, x: Scale, top: float, share: float, outlined: bool
) -> None:
    """The colours of all cells, one path for each; `outlined` where a cell has one colour only."""
    plan = timeline.plan
    typical = _typical(timeline, x)
    chunks = {stage: i for r in range(plan.p) for i, stage in enumerate(plan.stages_of(r))}
    cells: dict[tuple[str, int, bool], list] = defaultdict(list)
    for span in timeline.spans:
        edged = outlined and typical >= THINNEST and span.action.kind != "BW"
        for colour, left, y, wide, high in _parts(span, x, top, share):
            if typical < CROWDED:
                left, wide = _snapped(left, wide)
            if wide:
                cells[colour, chunks[span.action.stage], edged].append((left, y, wide, high))
    for (colour, chunk, edged), boxes in sorted(cells.items()):
        paint = COLOURS[colour].paint(white=lightness(chunk, plan.v))
        figure.boxes(boxes, **paint, **(OUTLINE if edged else {}))


def lightness(chunk: int, v: int) -> float:
    """The share of white in the cells of a rank's stages, from none in the first on."""
    return 0.6 * chunk / (v - 1) if chunk else 0.0


def split(timeline: Timeline) -> float:
    """B's share of a whole backward: what split backwards in the timeline took, or a half."""
    took = {
        kind: [s.end - s.start for s in timeline.spans if s.action.kind == kind] for kind in "BW"
    }
    if not (took["B"] and took["W"]):
        return 0.5
    b, w = median(took["B"]), median(took["W"])
    return b / (b + w) if b + w else 0.5


def _box(span: Span, x: Scale, top: float) -> tuple[float, float, float, float]:
    return x(span.start), top + span.rank * ROW + 2, x(span.end) - x(span.start), CELL


def _parts(span: Span, x: Scale, top: float, b_share: float) -> Iterator[tuple]:
    """The coloured rectangles of a cell, (colour, x, y, width, height): two for a BW."""
    left, y, wide, high = _box(span, x, top)
    if span.action.kind == "BW":
        yield "B", left, y, wide * b_share, high
        yield "W", left + wide * b_share, y, wide * (1 - b_share), high
    elif span.computes:
        yield span.action.kind, left, y, wide, high


def _typical(timeline: Timeline, x: Scale) -> float:
    """The width of a typical cell."""
    wide = [x(s.end) - x(s.start) for s in timeline.spans if s.computes]
    return median(wide) if wide else 0.0


def _snapped(left: float, wide: float) -> tuple[int, int]:
    """The whole columns whose middle a cell covers, so that a long run stays a small picture."""
    first, last = ceil(left - 0.5), ceil(left + wide - 0.5)
    return first, last - first


def _outlines(
    figure: Figure, timeline: Timeline, x: Scale, top: float, unit: str, tips: bool
) -> None:
    """One rectangle for each action with its name and times to hover for, or only where needed."""
    if _typical(timeline, x) < THINNEST:
        return
    if not tips:
        both = [_box(span, x, top) for span in timeline.spans if span.action.kind == "BW"]
        figure.boxes(both, fill="none", **OUTLINE)
        return
    with figure.group(pointer_events="all", fill="none", **OUTLINE):
        for span in timeline.spans:
            if span.computes:
                left, y, wide, high = _box(span, x, top)
                tip = _tip(timeline, span, unit)
                figure.mark("rect", x=left, y=y, width=wide, height=high, tip=tip)


def _messages(figure: Figure, timeline: Timeline, x: Scale, top: float, unit: str) -> None:
    """A low bar for each stretch in which a rank is blocked in a send or a receive."""
    spans = [s for s in timeline.spans if not s.computes and s.end > s.start]
    with figure.group(fill_opacity=0.35):
        for span in spans:
            left, y, wide, _ = _box(span, x, top)
            tip = _tip(timeline, span, unit)
            figure.mark("rect", x=left, y=y + 8, width=wide, height=6, tip=tip)


def _numbers(figure: Figure, timeline: Timeline, x: Scale, top: float, share: float) -> None:
    """The microbatch on each cell that is wide enough for any of them.

    On a BW it stands in the B part, or in the W part, where that has room, not on the edge
    between their colours. The digits of a row are one text element with an x for each; longer
    numbers need their own.
    """
    look = {"font_size": CELL_FONT, "text_anchor": "middle", "fill": svg.INK}
    needed = measure("0" * len(str(timeline.plan.m - 1)), CELL_FONT) + 2
    with figure.group(pointer_events="none", **look):
        for rank, row in enumerate(timeline.rows):
            y = top + rank * ROW + 17
            places = [
                (_middle(span, x, share, needed), str(span.action.microbatch))
                for span in row
                if span.computes and x(span.end) - x(span.start) >= needed
            ]
            digits = [place for place in places if len(place[1]) == 1]
            if digits:
                xs = " ".join(svg.number(middle) for middle, _ in digits)
                figure.mark("text", "".join(digit for _, digit in digits), x=xs, y=y)
            for middle, microbatch in places:
                if len(microbatch) > 1:
                    figure.words(middle, y, microbatch)


def _middle(span: Span, x: Scale, b_share: float, needed: float) -> float:
    """Where a number is read best: in the middle of the first part of a cell that has room."""
    for _, left, _, wide, _ in _parts(span, x, 0, b_share):
        if wide >= needed:
            return left + wide / 2
    return (x(span.start) + x(span.end)) / 2


def _tip(timeline: Timeline, span: Span, unit: str) -> str:
    """What an action is and when: "F3 of stage 5, 2 to 3"."""
    stage = f" of stage {span.action.stage}" if timeline.plan.v > 1 else ""
    start = amount(span.start / prefixed(timeline.makespan, unit)[0])
    return f"{span.action}{stage}, {start} to {moment(span.end, unit, timeline.makespan)}"


def keys(timelines: Sequence[Timeline]) -> list[svg.Key]:
    """The legend: the colours that occur, and what the lighter ones mean."""
    kinds = {span.action.kind for timeline in timelines for span in timeline.spans}
    drawn = kinds | ({"B", "W"} if "BW" in kinds else set())
    v = max(timeline.plan.v for timeline in timelines)
    found = [
        (f"{kind} {MEANINGS[kind]}", COLOURS[kind].paint()) for kind in COLOURS if kind in drawn
    ]
    if v > 1:
        lighter = COLOURS["F"].paint(white=lightness(v - 1, v))
        found.append(("later stage", lighter))
    if kinds - set(COMPUTE):
        found.append(("blocked in a message", {"height": 5, "fill_opacity": 0.35}))
    return found


def describe(timeline: Timeline, unit: str = "") -> str:
    """The picture in words: sizes, length, idle time, and what each rank does from when to when."""
    plan = timeline.plan

    def time(value: float) -> str:
        return moment(value, unit, timeline.makespan)

    told = [
        f"A grid with a row for each rank, {plan.p} in all, and time to the right. "
        f"The step takes {time(timeline.makespan)}, of which the ranks are idle "
        f"{percent(timeline.bubble)} on average."
    ]
    for rank, row in enumerate(timeline.rows):
        work = [span for span in row if span.computes]
        if not work:
            told.append(f"Rank {rank} does nothing.")
            continue
        order = " ".join(str(span.action) for span in work[:12]) + (" …" if len(work) > 12 else "")
        told.append(
            f"Rank {rank} starts at {time(work[0].start)}, ends at {time(work[-1].end)} and works "
            f"for {time(timeline.busy[rank])}: {order}."
        )
    return " ".join(told)
