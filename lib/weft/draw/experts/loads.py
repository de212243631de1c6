"""How many tokens each expert is given, what it can take, and what is dropped."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure, dashed
from weft.plan.experts import capacity, loads
from weft.plan.units import amount

TOKENS = 1024
WIDE, HIGH, TOP, LEFT = 350, 190, 34, 34
TAKEN, DROPPED = svg.FORWARD.paint(), svg.STUCK.paint()


def loads_svg(E: int = 16, k: int = 1, factor: float = 1.25, skew: float = 0.5) -> str:
    """A bar for each expert, by place: what it takes, what is dropped, and its empty places."""
    counts = loads(TOKENS, E, k, skew)
    most = capacity(TOKENS, E, factor, k)
    figure = Figure.small(
        WIDE, TOP + HIGH + 40, f"Loads of {E} experts", _describe(counts, most), largest=1.5
    )
    empty = dashed("2 2", 0.5)
    svg.legend(figure, [("taken", TAKEN | OUTLINE), ("dropped", DROPPED | OUTLINE),
                        ("empty place", empty)])  # fmt: skip
    highest = max(*counts, most)
    y, step = svg.Scale(0, highest * 1.04, TOP + HIGH, TOP), (WIDE - LEFT) / E
    with figure.group(font_size=11, text_anchor="end"):
        for tick in y.ticks(4):
            figure.line(LEFT, y(tick), WIDE, y(tick), stroke_opacity=0.15)
            if abs(y(tick) - y(most)) > 12:
                figure.words(LEFT - 5, y(tick) + 4, amount(tick))
        figure.words(LEFT - 5, y(most) + 4, amount(most), font_weight="bold")
    for i, count in enumerate(counts):
        x, wide = LEFT + i * step + step * 0.08, step * 0.84
        said = f"expert {i}: {count} choices, {max(0, count - most)} dropped"
        top = y(min(count, most))
        figure.mark("rect", x=x, y=top, width=wide, height=TOP + HIGH - top, **TAKEN, tip=said)
        if count > most:
            box = {"x": x, "y": y(count), "width": wide, "height": y(most) - y(count)}
            figure.mark("rect", **box, **DROPPED, tip=said)
        elif count < most:
            box = {"x": x, "y": y(most), "width": wide, "height": top - y(most)}
            figure.mark("rect", **box, **empty)
    figure.line(LEFT, y(most), WIDE, y(most), stroke_width=1.5)
    figure.words(LEFT, TOP + HIGH + 18, f"experts 0 to {E - 1}", font_size=11)
    figure.words(0, TOP + HIGH + 36, "bold: the capacity", font_size=11)
    return str(figure)


def _describe(counts: tuple[int, ...], most: int) -> str:
    over = [(i, count) for i, count in enumerate(counts) if count > most]
    told = ", ".join(f"expert {i} by {count - most}" for i, count in over) or "none"
    return (
        f"{len(counts)} bars of {TOKENS} tokens' choices, from {max(counts)} to {min(counts)}, and "
        f"a line at the capacity of {most}. Above it: {told}. Below it places are empty."
    )
