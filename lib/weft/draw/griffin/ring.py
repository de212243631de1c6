"""A window's ring buffer: which position lies in which slot after each token."""

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure
from weft.plan.arguments import sizes

NAME, EACH, HIGH, TOP = 64, 44, 22, 54
MOST = 6  # slots that a phone has room for
NEW, OLD = svg.FORWARD, svg.TRAVEL


def ring_svg(window: int = 4, T: int = 7) -> str:
    """Token t is written into slot t % window; what lies in the others are the ones before it."""
    window, T = sizes(window=window, T=T)
    if window > MOST:
        raise ValueError(f"window is {window}, must be at most {MOST} to fit a phone")
    rows = [_slots(t, window) for t in range(T)]
    figure = Figure.small(
        NAME + MOST * EACH, TOP + T * HIGH + 4, f"A ring of {window} slots",
        _describe(rows), largest=1.4,
    )  # fmt: skip
    keys = [("just written", NEW.paint() | OUTLINE), ("kept", OLD.paint(0.4) | OUTLINE)]
    svg.legend(figure, keys)
    with figure.group(text_anchor="middle", font_size=11):
        for slot in range(window):
            figure.words(NAME + (slot + 0.5) * EACH, TOP - 8, f"slot {slot}")
    for t, slots in enumerate(rows):
        y = TOP + t * HIGH
        figure.words(0, y + 15, f"token {t}", font_size=11)
        for slot, position in enumerate(slots):
            box = {"x": NAME + slot * EACH + 2, "y": y + 1, "width": EACH - 4, "height": HIGH - 2}
            if position is None:
                figure.mark("rect", **box, **svg.dashed("3 3", 0.5))
                continue
            look = (NEW.paint() if position == t else OLD.paint(0.4)) | OUTLINE
            tip = f"after token {t}, slot {slot} holds position {position}"
            figure.mark("rect", **box, **look, tip=tip)
            figure.words(NAME + (slot + 0.5) * EACH, y + 16, str(position), fill=INK,
                         text_anchor="middle", font_size=11)  # fmt: skip
    return str(figure)


def _slots(t: int, window: int) -> list[int | None]:
    """The position in each slot once token t is written."""
    held = {position % window: position for position in range(max(0, t - window + 1), t + 1)}
    return [held.get(slot) for slot in range(window)]


def _describe(rows: list) -> str:
    def said(row: list) -> str:
        return ", ".join("empty" if one is None else str(one) for one in row)

    lines = "; ".join(f"token {t}: {said(row)}" for t, row in enumerate(rows))
    return f"A row for each token with what its slots hold, from slot 0 on. {lines}."
