"""A gradient through a choice: the switch has none, the knob behind it has."""

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure, dashed

ODDS = (0.5, 0.3, 0.2)  # of three experts
WIDE, HIGH, TOP, PANEL = 350, 26, 62, 186
ROUTER, WIRE, EXPERT, KNOB = 46, 128, 150, 268
WORKS, BACK = svg.FORWARD.paint(), svg.INPUT_GRADIENT


def switchboard_svg() -> str:
    """Twice: a router, three experts and the volume of the one that is wired up.

    Above the volume is its probability, and a gradient reaches the router through it. Below it is
    that probability over itself, and none does.
    """
    figure = Figure.small(
        WIDE, 26 + 2 * PANEL, "The gradient of a choice goes through its weight", _describe(),
        largest=1.4,
    )  # fmt: skip
    keys = [("forward", WORKS | OUTLINE), ("gradient of the router", BACK.paint() | OUTLINE)]
    svg.legend(figure, keys)
    _panel(figure, 26, f"weight p = {ODDS[0]:g}: the router learns", f"× {ODDS[0]:g}", True)
    below = f"weight p / p = {ODDS[0] / ODDS[0]:g}: the router is frozen"
    _panel(figure, 26 + PANEL, below, f"× {ODDS[0] / ODDS[0]:g}", False)
    return str(figure)


def _panel(figure: Figure, top: float, title: str, volume: str, learns: bool) -> None:
    figure.words(0, top + 20, title, font_weight="bold")
    middle = top + TOP + 1.5 * HIGH + 4
    _box(figure, 0, middle - HIGH / 2, 38, "x", "a token")
    _line(figure, f"M38 {middle}H{ROUTER}")
    for i, p in enumerate(ODDS):
        y = top + TOP + i * (HIGH + 6)
        figure.mark("rect", x=ROUTER, y=y + 4, width=60 * p, height=HIGH - 8, **WORKS, **OUTLINE,
                    tip=f"probability of expert {i}: {p:g}")  # fmt: skip
        look = {"font_size": 11, "text_anchor": "end"}
        figure.words(WIRE - 6, y + HIGH / 2 + 4, f"{p:g}", **look)
        _box(figure, EXPERT, y, 78, f"expert {i}", f"expert {i}", idle=i > 0)
        path = f"M{WIRE} {y + HIGH / 2}H{EXPERT}"
        if i:
            figure.mark("path", d=path, **dashed("3 3", 0.6))
        else:
            _line(figure, path)
            _line(figure, f"M{EXPERT + 78} {y + HIGH / 2}H{KNOB - 18}")
            _line(figure, f"M{KNOB + 18} {y + HIGH / 2}H{WIDE - 22}")
            figure.words(WIDE - 18, y + HIGH / 2 + 4, "y")
    y = top + TOP + HIGH / 2
    figure.mark("circle", cx=KNOB, cy=y, r=18, **WORKS, **OUTLINE, tip=f"the output {volume}")
    figure.words(KNOB, y + 4, volume, fill=INK, text_anchor="middle", font_weight="bold")
    above = y - 26
    if learns:
        path = f"M{KNOB} {y - 19}V{above}H{ROUTER + 15}V{y - 12}"
        figure.mark("path", d=path, fill="none", **BACK.stroke(2.5))
        figure.mark("path", d=f"M{ROUTER + 10} {y - 19}L{ROUTER + 15} {y - 12}L{ROUTER + 20} "
                    f"{y - 19}", fill="none", **BACK.stroke(2.5))  # fmt: skip
    else:
        figure.words(ROUTER + 40, above + 4, "d(p / p) / dp = 0", font_size=11)
    below = top + TOP + 3 * (HIGH + 6) + 12
    figure.words(ROUTER, below, "router: p", font_size=11)
    figure.words(WIRE - 8, below, "the switch: no gradient", font_size=11)


def _box(figure: Figure, x, y, wide, word, tip, idle: bool = False) -> None:
    look = dashed("3 3", 0.6) | {"pointer_events": "all"} if idle else WORKS | OUTLINE
    figure.mark("rect", x=x, y=y, width=wide, height=HIGH, rx=4, **look, tip=tip)
    ink = {} if idle else {"fill": INK}
    figure.words(x + wide / 2, y + HIGH / 2 + 4, word, text_anchor="middle", **ink)


def _line(figure: Figure, path: str) -> None:
    figure.mark("path", d=path, fill="none", stroke="currentColor", stroke_width=1.5)


def _describe() -> str:
    odds = ", ".join(f"{p:g}" for p in ODDS)
    return (
        f"Two panels. In each a token meets a router with probabilities {odds}; the wire to expert "
        f"0 is closed, the others are open, and the expert's output passes a knob. Above, the knob "
        f"is {ODDS[0]:g}, and an arrow of gradient leads from it back to the router. Below, the "
        f"knob is 1 whatever the router says, and there is no arrow."
    )
