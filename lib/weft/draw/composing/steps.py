"""Steps as sums: a bar for each layout, cut by what its seconds are spent on."""

from collections.abc import Sequence

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure, Scale, dashed
from weft.plan.arguments import row
from weft.plan.composing import CLUSTERS, Estimate, Layout, estimate
from weft.plan.shape import SHAPES
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

MODEL, BATCH, DEVICES = "gpt3-175b", 1536, 1024  # of the chapter's worked example, on Selene


def worked(**layout: int | str | bool) -> Estimate:
    """The chapter's example under a layout: GPT-3 on 1,024 A100s, 1,536 sequences a step."""
    chosen = Layout(**layout)
    return estimate(SHAPES[MODEL], chosen, BATCH, CLUSTERS["selene"].of(DEVICES))


def variants() -> list[tuple[str, Estimate]]:
    """That example five times, the first as a beginning and the others with one thing changed."""
    lean = {"sequence_parallel": True, "recompute": "selective"}
    return [
        ("t 8, p 8, d 16", worked(t=8, p=8, d=16, **lean)),
        ("interleaved, v 6", worked(t=8, p=8, d=16, v=6, **lean)),
        ("p 4, d 32, ZeRO-1", worked(t=8, p=4, d=32, zero=1, **lean)),
        ("t 16, d 8", worked(t=16, p=8, d=8, **lean)),
        ("t 8, p 8, full recompute", worked(t=8, p=8, d=16, recompute="full")),
    ]


def kinds(found: Estimate) -> dict[str, float]:
    """An estimate's parts in six kinds, which add up to its seconds as they do."""
    return {kind: sum(found.parts.get(name, 0.0) for name in names)
            for kind, (names, _) in KINDS.items()}  # fmt: skip


def steps_svg(rows: Sequence[tuple[str, Estimate]]) -> str:
    """A bar for each name and its estimate, on one scale; one that does not fit says so."""
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
