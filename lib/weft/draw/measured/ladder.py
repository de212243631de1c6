"""Versions of one thing as a ladder: a bar for each, what it gained, and the reason beneath."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from weft.draw.figure import FORWARD, LEGIBLE, Figure, Scale, measure
from weft.draw.measured.curves import NOTHING
from weft.plan.units import amount, quantity

WIDE, BAR, LINE, SMALL, GAP = 400, 15, 14, 11, 12


class Rung(NamedTuple):
    """A version, what it reaches (None where nobody knows yet), and why."""

    name: str
    value: float | None
    reason: str = ""


def svg(
    steps: Sequence[Rung], unit: str, title: str = "", limits: Mapping[str, float] = NOTHING
) -> str:
    """The versions from first to last, each over the one before it; limits are strokes at bars."""
    known = [step.value for step in steps if step.value is not None]
    if not steps:
        raise ValueError("steps is empty, must hold at least one")
    for value in (*known, *limits.values()):
        if not (isfinite(value) and value > 0):
            raise ValueError(f"steps has {value!r}, must be finite and above 0")
    most = max([*known, *limits.values()], default=1.0)
    x = Scale(0, most, 0, WIDE - 4)
    reasons = [wrapped(step.reason, WIDE, SMALL) for step in steps]
    top = (20 if title else 4) + (LINE * len(limits) + 7 if limits else 0)
    high = top + sum(LINE + BAR + LINE * len(lines) + GAP for lines in reasons)
    figure = Figure(
        WIDE, high, title or "Versions, one after the other", _describe(steps, unit, limits),
        least=WIDE * LEGIBLE, largest=WIDE * 1.5,
    )  # fmt: skip
    if title:
        figure.words(0, 12, title, font_weight="bold")
    y, before = top, None
    for step, lines in zip(steps, reasons, strict=True):
        _step(figure, step, lines, before, unit, x, y)
        before = step.value or before
        for value in limits.values():
            at = x(value)
            figure.line(at, y + LINE - 3, at, y + LINE + BAR + 1, stroke_width=2)
        y += LINE + BAR + LINE * len(lines) + GAP
    for i, (name, value) in enumerate(limits.items()):
        row = (20 if title else 4) + LINE * i + 9
        said = f"{name} {quantity(value, unit)}"
        figure.words(x(value), row, f"{said} |", font_size=SMALL, text_anchor="end")
    return str(figure)


def _step(figure: Figure, step: Rung, lines, before: float | None, unit: str, x, y) -> None:
    figure.words(0, y + 10, step.name, font_weight="bold")
    if step.value is None:
        said = "not yet measured"
    else:
        said = quantity(step.value, unit)
        if before:
            said += f", {amount(float(f'{step.value / before:.3g}'))} times as much"
        figure.mark("rect", x=0, y=y + LINE, width=x(step.value), height=BAR - 2, rx=2,
                    tip=f"{step.name}: {said}", **FORWARD.paint())  # fmt: skip
    figure.words(WIDE - 4, y + 10, said, text_anchor="end", font_size=SMALL)
    for i, text in enumerate(lines):
        figure.words(0, y + LINE + BAR + LINE * i + 11, text, font_size=SMALL)


def wrapped(text: str, room: float, size: float) -> list[str]:
    """Text in lines that fit.

    >>> wrapped("one two three", 50, 11)
    ['one two', 'three']
    """
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and measure(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _describe(steps: Sequence[Rung], unit: str, limits: Mapping[str, float]) -> str:
    told = [
        f"{s.name} {'not yet measured' if s.value is None else quantity(s.value, unit)}"
        + (f" ({s.reason})" if s.reason else "")
        for s in steps
    ]
    told += [f"{name}, a limit, {quantity(value, unit)}" for name, value in limits.items()]
    return f"Bars, in order: {'; '.join(told)}."
