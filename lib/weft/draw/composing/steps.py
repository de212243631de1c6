"""Steps as sums: a bar for each layout, cut by what its seconds are spent on."""

from collections.abc import Sequence

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure, Scale, dashed, measure
from weft.plan.arguments import row
from weft.plan.composing import Estimate
from weft.plan.units import amount

WIDE, HIGH, ROW, TOP = 350, 18, 46, 46
KINDS = {
    "computes": (("matmul", "attention", "elementwise"), svg.FORWARD.paint() | OUTLINE),
    "again": (("recompute",), svg.INPUT_GRADIENT.paint() | OUTLINE),
    "idle": (("imbalance", "bubble"), dashed("2 2", 0.6)),
    "t, c, e": (("tensor", "context", "experts"), svg.TRAVEL.paint() | OUTLINE),
    "p, d": (("pipeline", "data"), svg.STUCK.paint() | OUTLINE),
    "optimizer": (("optimizer",), svg.WAITING.paint() | OUTLINE),
}


def kinds(found: Estimate) -> dict[str, float]:
    """An estimate's parts in six kinds, which add up to its seconds as they do."""
    return {kind: sum(found.parts.get(name, 0.0) for name in names)
            for kind, (names, _) in KINDS.items()}  # fmt: skip


def steps_svg(rows: Sequence[tuple[str, Estimate]]) -> str:
    """A bar for each name and its estimate, all on one scale; a layout that does not fit says so."""
    rows = [(str(name), found) for name, found in row("rows", rows)]
    for _, found in rows:
        if not isinstance(found, Estimate):
            raise ValueError(f"rows has {found!r}, must have pairs of a name and an Estimate")
    longest = max(found.seconds for _, found in rows)
    figure = Figure.small(
        WIDE, TOP + ROW * len(rows) - 4, "What the seconds of a step are spent on", _told(rows),
        largest=1.5,
    )  # fmt: skip
    keys = [(kind, look) for kind, (_, look) in KINDS.items()]
    svg.legend(figure, keys[:3])
    svg.legend(figure, keys[3:], y=30)
    x = Scale(0, longest, 0.5, WIDE - 1)
    for i, (name, found) in enumerate(rows):
        y = TOP + i * ROW
        figure.words(0, y + 12, name, font_size=11, font_weight="bold")
        said = f"{amount(found.seconds, 3)} s, {found.memory / 1e9:.0f} GB"
        said += "" if found.fits else ", too much"
        figure.words(WIDE, y + 12, said, font_size=11, text_anchor="end")
        at = 0.0
        for kind, spent in kinds(found).items():
            if spent <= 0:
                continue
            box = {"x": x(at), "y": y + 17, "width": x(at + spent) - x(at), "height": HIGH}
            tip = f"{kind}: {amount(spent, 3)} s, {spent / found.seconds:.0%}"
            figure.mark("rect", **box, **KINDS[kind][1], tip=tip)
            at += spent
    return str(figure)


def _told(rows: Sequence[tuple[str, Estimate]]) -> str:
    told = []
    for name, found in rows:
        spent = ", ".join(f"{kind} {amount(s, 3)}" for kind, s in kinds(found).items() if s > 0)
        room = "" if found.fits else ", which does not fit"
        told.append(f"{name}: {amount(found.seconds, 3)} s, of which {spent}; "
                    f"{found.memory / 1e9:.0f} GB{room}")  # fmt: skip
    return ". ".join(told) + "."
