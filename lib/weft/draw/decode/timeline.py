"""Batches over time: a row for each place in the batch, a box for what a request does in a step."""

from collections.abc import Sequence

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Colour, Figure, Scale, dashed, measure, number
from weft.plan.decode import Batching
from weft.plan.units import amount

WIDE, ROW, HEAD, AXIS, GAP = 480, 20, 24, 36, 8
PROMPT = Colour("weft-prompt", "#EE8866")
TOKEN = Colour("weft-token", "#77AADD")
HELD = dashed("2 2", 0.6)
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def timeline_svg(batchings: Sequence[Batching]) -> str:
    """A panel for each policy, all at one scale of time, steps parted by lines.

    A box is one request in one step; one in which a prompt goes in carries the request's name and,
    where there is room, how many tokens. Dashed is the place of a request that is done.
    """
    x = Scale(0, max(one.end for one in batchings), 0, WIDE)
    heights = [HEAD + one.rows * ROW + GAP for one in batchings]
    figure = Figure.small(
        WIDE,
        26 + sum(heights) + AXIS,
        f"{len(batchings)} ways to batch {len(batchings[0].asked)} requests",
        _describe(batchings),
        largest=1.5,
    )
    keys = [
        ("prompt goes in", PROMPT.paint() | OUTLINE),
        ("a token comes out", TOKEN.paint() | OUTLINE),
        ("done, still held", HELD),
    ]
    svg.legend(figure, keys)
    top = 26.0
    for one, high in zip(batchings, heights, strict=True):
        told = (
            f"{one.policy}: done at {amount(one.end)}, first token after {one.first:.1f}, "
            f"longest gap {amount(one.gap)}"
        )
        figure.words(0, top + 16, told, font_weight="bold")
        _panel(figure, one, x, top + HEAD)
        top += high
    with figure.group(font_size=11):
        for tick in x.ticks(6):
            anchor = "end" if x(tick) > WIDE - 12 else "middle" if x(tick) else "start"
            figure.line(x(tick), top, x(tick), top + 4)
            figure.words(x(tick), top + 16, amount(tick), text_anchor=anchor)
        figure.words(0, top + 30, "time, in the shortest step")
    return str(figure)


def _panel(figure: Figure, one: Batching, x: Scale, top: float) -> None:
    figure.mark("rect", x=0, y=top, width=x(one.end), height=one.rows * ROW, fill_opacity=0.06)
    for step in one.steps:
        left, wide = x(step.begin), x(step.end) - x(step.begin)
        for part in step.parts:
            y, name = top + part.row * ROW, NAMES[part.request % len(NAMES)]
            what = f"{part.tokens} tokens of its prompt" if part.prompt else "a token"
            box = {"x": left, "y": y, "width": wide, "height": ROW}
            look = (PROMPT if part.prompt else TOKEN).paint()
            figure.mark("rect", **box, **look, **OUTLINE, tip=f"{name}: {what}")
            if part.prompt:
                long = f"{name} {part.tokens}"
                shown = long if measure(long, 11) < wide - 3 else name
                middle = {"text_anchor": "middle", "font_size": 11, "fill": svg.INK}
                figure.words(left + wide / 2, y + 14, shown, **middle)
        for row in step.held:
            box = {"x": left + 1, "y": top + row * ROW + 2, "width": wide - 2, "height": ROW - 4}
            figure.mark("rect", **box, **HELD)


def _describe(batchings: Sequence[Batching]) -> str:
    told = ["A panel for each policy: rows are places in the batch, time runs to the right."]
    for one in batchings:
        told.append(
            f"{one.policy}: {len(one.steps)} steps, all done at {number(one.end)}, first tokens "
            f"after {number(one.first)} on average, at most {number(one.gap)} between two tokens."
        )
    return " ".join(told)
