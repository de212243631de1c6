"""What each collective does, one small picture each: who has which parts before and after."""

from collections.abc import Mapping

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Colour, Figure, dashed, measure
from weft.plan.collectives import Held, Steps, begin, goal
from weft.plan.collectives.steps import STEPS

RANKS = (
    Colour("weft-rank0", "#88BBEE"),
    Colour("weft-rank1", "#EE8866"),
    Colour("weft-rank2", "#EEDD88"),
)
SUM = Colour("weft-same", "#44BB99")
EMPTY = dashed("2 2", 0.35)
SHOWN = {
    "broadcast": "tree_broadcast",
    "all-gather": "ring_all_gather",
    "reduce-scatter": "ring_reduce_scatter",
    "all-reduce": "ring_all_reduce",
    "all-to-all": "all_to_all",
}
N, EACH, BETWEEN = len(RANKS), 17, 22  # ranks, the side of a cell, the room of an arrow
WIDE, ACROSS, HIGH = 420, 3, N * EACH + 40  # pictures beside each other, the height of one


def pictograms_svg() -> str:
    """Five collectives on three ranks; a row is a rank, a column a part of the data."""
    kinds = {name: STEPS[make](N) for name, make in SHOWN.items()}
    figure = Figure.small(
        WIDE,
        26 + HIGH * -(-len(kinds) // ACROSS),
        f"Five collectives on {N} ranks",
        " ".join(f"{name}: {_told(steps)}." for name, steps in kinds.items()),
    )
    keys = [(f"from rank {r}", RANKS[r].paint() | OUTLINE) for r in range(N)]
    svg.legend(figure, [*keys, ("a sum", SUM.paint() | OUTLINE)])
    for at, (name, steps) in enumerate(kinds.items()):
        x, y = at % ACROSS * WIDE / ACROSS, 44 + at // ACROSS * HIGH
        figure.words(x, y - 7, name)
        _map(figure, steps, begin(steps), x, y)
        middle, after = y + N * EACH / 2, x + N * EACH + BETWEEN
        figure.line(x + N * EACH + 5, middle, after - 6, middle)
        tip = f"M{after - 10} {middle - 4}L{after - 6} {middle}L{after - 10} {middle + 4}"
        figure.mark("path", d=tip, fill="none", stroke="currentColor")
        _map(figure, steps, goal(steps), after, y)
    return str(figure)


def _columns(steps: Steps) -> Mapping[tuple[int, int], int]:
    """Where a rank has a chunk: in an all-to-all by its other end, before and after."""
    if steps.op != "all_to_all":
        return {(r, i): i for r in range(N) for i in range(steps.chunks)}
    ends = {(s, s * N + t): t for s in range(N) for t in range(N)}
    return ends | {(t, s * N + t): s for s in range(N) for t in range(N) if s != t}


def _map(figure: Figure, steps: Steps, held: list[Held], x: float, y: float) -> None:
    place = _columns(steps)
    columns = N if steps.chunks > 1 else 1
    cells = {(r, c): (x + c * EACH, y + r * EACH) for r in range(N) for c in range(columns)}
    full = {(r, place[r, i]): (i, who) for r, own in enumerate(held) for i, who in own.items()}
    figure.boxes([(*cells[key], EACH, EACH) for key in cells if key not in full], **EMPTY)
    for (rank, column), (chunk, who) in full.items():
        left, top = cells[rank, column]
        colour = SUM if len(who) > 1 else RANKS[min(who)]
        tip = f"rank {rank}, part {chunk % N}: {_whose(who)}"
        box = {"x": left, "y": top, "width": EACH, "height": EACH}
        figure.mark("rect", tip=tip, **box, **colour.paint(), **OUTLINE)
        text = "Σ" if len(who) > 1 else str(chunk % N)
        figure.words(
            left + (EACH - measure(text, 11)) / 2 + 0.5, top + 13, text,
            fill=svg.INK, font_size=11, pointer_events="none",
        )  # fmt: skip


def _whose(who: Mapping[int, int]) -> str:
    ranks = ", ".join(map(str, sorted(who)))
    return f"the sum of ranks {ranks}" if len(who) > 1 else f"from rank {ranks}"


def _told(steps: Steps) -> str:
    """How many parts a rank has before and after, and whether they are sums."""
    before, after = begin(steps), goal(steps)
    sums = any(len(who) > 1 for own in after for who in own.values())
    counts = [", ".join(str(len(own)) for own in held) for held in (before, after)]
    return f"parts before, by rank, {counts[0]}; {'sums' if sums else 'parts'} after {counts[1]}"
