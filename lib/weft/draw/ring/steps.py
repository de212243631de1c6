"""A causal pass of the ring in time: what each rank computes in each step, and where it waits."""

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure, Scale, dashed, measure
from weft.plan.arguments import chosen, whole
from weft.plan.ring import LAYOUTS, longest_path, work
from weft.plan.units import amount

WIDE, LEFT, ROW, HIGH, TOP = 350, 44, 22, 17, 44
MOST = 8  # ranks that can be told apart
TOKENS = 240  # of a rank; its diagonal is then half a block, but for a quarter of a percent
COMPUTES, WAITS = svg.FORWARD.paint() | OUTLINE, dashed("3 3", 0.5)


def steps_svg(n: int = 4, layout: str = "contiguous") -> str:
    """A row for each rank, a cell for each block that it computes, as long as it has pairs.

    A step takes as long as its busiest rank. Time is in blocks: all pairs of one rank's queries
    with one rank's keys. The axis is as long as the contiguous pass, for every layout.
    """
    n, layout = whole("n", n, least=1, most=MOST), chosen("layout", layout, LAYOUTS)
    T = n * TOKENS
    rows = work(T, n, layout)
    ends = [longest_path(T, n, name) / TOKENS**2 for name in (layout, "contiguous")]
    figure = Figure.small(
        WIDE, TOP + ROW * n + 28, f"{layout.capitalize()}, {n} ranks",
        _describe(n, layout, rows, ends[0]), largest=1.5,
    )  # fmt: skip
    svg.legend(figure, [("computes", COMPUTES), ("waits", WAITS)])
    x = Scale(0, max(ends), LEFT, WIDE - 16)
    starts = [0.0]
    for step in zip(*rows, strict=True):
        starts.append(starts[-1] + max(step) / TOKENS**2)
    svg.time_lines(figure, x, TOP - 8, TOP + ROW * n, max(ends), "")
    for r, row in enumerate(rows):
        y = TOP + ROW * r
        figure.words(0, y + 13, f"rank {r}", font_size=11)
        for s, pairs in enumerate(row):
            _cell(figure, x, y, starts[s], pairs / TOKENS**2, starts[s + 1], (r, s, (r - s) % n))
    with figure.group(text_anchor="middle", font_size=11):
        for s in range(n):
            middle = (x(starts[s]) + x(starts[s + 1])) / 2
            label = f"step {s}" if x(starts[s + 1]) - x(starts[s]) > 40 else str(s)
            figure.words(middle, TOP - 12, label)
    _axis(figure, x, TOP + ROW * n + 18, starts[-1])
    return str(figure)


def _cell(figure, x, y, start, long, end, who) -> None:
    """What a rank computes in a step, and how long it then waits."""
    rank, step, source = who
    left, wide = x(start) + 1, x(start + long) - x(start) - 2
    if long:
        tip = f"rank {rank}, step {step}: keys of rank {source}, {amount(long, 3)} blocks"
        figure.mark("rect", x=left, y=y, width=wide, height=HIGH, **COMPUTES, tip=tip)
        label = f"K{'₀₁₂₃₄₅₆₇'[source]}"
        if wide > measure(label, 11):
            look = {"text_anchor": "middle", "font_size": 11, "fill": INK}
            figure.words(left + wide / 2, y + 13, label, **look)
    if end - start - long > 0.02:
        first = x(start + long) + 1
        box = {"x": first, "y": y + 1, "width": x(end) - first - 2, "height": HIGH - 2}
        tip = f"rank {rank} waits in step {step}"
        figure.mark("rect", **box, **WAITS, pointer_events="all", tip=tip)


def _axis(figure, x, y, end) -> None:
    """Whole blocks of time, and the end in bold."""
    figure.words(0, y, "blocks", font_size=11)
    last = amount(end, 2)
    with figure.group(text_anchor="middle", font_size=11):
        for tick in x.ticks(8):
            apart = abs(x(tick) - x(end)) > (measure(last, 11) + measure(amount(tick), 11)) / 2 + 4
            if apart and tick == int(tick):
                figure.words(x(tick), y, amount(tick))
        figure.words(x(end), y, last, font_weight="bold")


def _describe(n, layout, rows, end) -> str:
    blocks = TOKENS**2
    told = "; ".join(
        f"rank {r} " + ", ".join(amount(pairs / blocks, 2) for pairs in row)
        for r, row in enumerate(rows)
    )
    return (
        f"A row for each of {n} ranks over {n} steps, a cell for what it computes, dashes where it "
        f"waits. In blocks, step by step: {told}. The pass takes {amount(end, 3)} blocks."
    )
