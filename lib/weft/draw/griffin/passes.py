"""A scan at one moment: one thread for a channel, or one for each of its chunks."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure

TOKENS, ROWS, CHUNK, AHEAD = 12, 3, 4, 2
LEFT, EACH, HIGH, GAP = 8, 25, 15, 8  # of a cell; between chunks
DONE, COMING = svg.FORWARD, svg.TRAVEL


def passes_svg() -> str:
    """Above, one pass; below, the three of a scan in chunks. Marked is what is on its way."""
    wide = LEFT + TOKENS * EACH + 2 * GAP + 8
    figure = Figure.small(
        wide, 306, "A scan in one pass, and in chunks of time", _describe(), largest=1.5
    )
    keys = (("computed", DONE.paint() | OUTLINE), ("being loaded", COMING.paint() | OUTLINE),
            ("later", {"fill_opacity": 0.06} | OUTLINE))  # fmt: skip
    svg.legend(figure, keys)
    figure.words(0, 42, "One pass: a thread goes through a channel", font_weight="bold")
    _grid(figure, 50, TOKENS, 5, 0)
    figure.words(0, 122, "1. In chunks: each from 0, its end and product", font_weight="bold")
    _grid(figure, 130, CHUNK, 1, GAP)
    figure.words(0, 202, "2. The states between chunks, one by one", font_weight="bold")
    _chain(figure, 212)
    figure.words(0, 246, "3. All is read again: each from its state", font_weight="bold")
    _grid(figure, 254, CHUNK, 1, GAP)
    return str(figure)


def _grid(figure: Figure, top: float, run: int, done: int, gap: float) -> None:
    """Channels down and tokens across; after each `run` tokens another thread has begun."""
    for row in range(ROWS):
        for t in range(TOKENS):
            i = t % run
            colour = DONE if i < done else COMING if i < done + AHEAD else None
            state = {DONE: "computed", COMING: "being loaded", None: "later"}[colour]
            look = colour.paint() if colour else {"fill_opacity": 0.06}
            figure.mark(
                "rect", x=LEFT + t * EACH + t // run * gap, y=top + row * HIGH, width=EACH - 2,
                height=HIGH - 2, tip=f"channel {row}, token {t}: {state}", **look, **OUTLINE,
            )  # fmt: skip


def _chain(figure: Figure, top: float) -> None:
    """Between two chunks, the state that goes from one to the next."""
    for i in range(TOKENS // CHUNK):
        right = LEFT + (i + 1) * CHUNK * EACH + i * GAP - 2
        box = {"x": right - EACH + 2, "y": top, "width": EACH - 2, "height": HIGH - 2}
        figure.mark("rect", **box, **DONE.paint(), **OUTLINE, tip=f"state after chunk {i}")
        if i:
            start, end, y = right - CHUNK * EACH - GAP + 2, right - EACH, top + HIGH / 2 - 1
            figure.line(start, y, end, y)
            figure.mark("path", d=f"M{end - 5} {y - 3.5}L{end} {y}L{end - 5} {y + 3.5}",
                        fill="none", stroke="currentColor")  # fmt: skip


def _describe() -> str:
    threads = ROWS * TOKENS // CHUNK
    return (
        f"{ROWS} channels of {TOKENS} tokens at one moment. Above, one thread for a channel: five "
        f"tokens computed, {AHEAD} being loaded in each, {ROWS * AHEAD} in all. Below, chunks of "
        f"{CHUNK}: {threads} threads, each with {AHEAD} tokens being loaded, {threads * AHEAD} in "
        f"all; then a chain of states from chunk to chunk; then all chunks are loaded again."
    )
