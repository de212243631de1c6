"""Layouts that BigScience timed on 384 A100s before BLOOM's training, as a trial of ours.

BigScience 2022, train/tr11-176B-ml/chronicles-prequel.md, the tables of 25 February: a model of 72
layers, width 14336 and 64 heads, fp16, ZeRO-1, every layer recomputed, on 48 nodes of Jean Zay. One
step each, the second of its run, so each may be off by a few percent.
"""

from dataclasses import replace
from typing import NamedTuple

from weft.plan.composing.layout import Layout
from weft.plan.shape import SHAPES
from weft.plan.shape.model import ModelShape


class Tried(NamedTuple):
    """A layout, its batch in sequences, the seconds of a step and the GB in use.

    `seconds` is None where the model did not fit, and `gb` where none was noted.
    """

    layout: Layout
    batch: int
    seconds: float | None
    gb: int | None


def shape() -> ModelShape:
    """What was timed: BLOOM's width and vocabulary, two layers more, and 64 heads.

    >>> f"{shape().params / 1e9:.0f}"
    '181'
    """
    return replace(SHAPES["bloom-176b"], layers=72, heads=64)


def _tried(d, t, p, microbatch, batch, seconds, gb) -> Tried:
    layout = Layout(p=p, t=t, d=d, microbatch=microbatch, zero=1, recompute="full")
    return Tried(layout, batch, seconds, gb)


TRIED = tuple(
    _tried(*row)
    for row in (  # d, t, p, microbatch, batch, seconds, GB
        (8, 8, 6, 4, 2048, 114.11, 55),
        (8, 8, 6, 6, 2016, 123.57, 66),
        (4, 8, 12, 4, 1568, 92.75, None),
        (4, 8, 12, 4, 2048, 117.07, 49),
        (4, 8, 12, 2, 1568, 99.93, None),
        (4, 8, 12, 2, 2048, 128.82, None),
        (6, 8, 8, 4, 2016, 113.16, 52),
        (12, 8, 4, 2, 2016, 125.52, 53),
        (12, 8, 4, 4, 2016, 114.81, 59),
        (24, 8, 2, 1, 2016, 145.45, 65),
        (24, 8, 2, 2, 2016, 136.13, 76),
        (48, 8, 1, 1, 2016, None, None),
        (8, 4, 12, 4, 2048, 111.89, 60),
        (8, 4, 12, 2, 2048, 110.48, 44),
        (16, 4, 6, 4, 2048, 117.11, 75),
        (16, 4, 6, 2, 2048, 111.71, 57),
        (16, 2, 12, 2, 2048, 112.50, 63),
        (32, 2, 6, 2, 2048, None, None),
        (32, 2, 6, 1, 2048, None, None),
        (8, 2, 24, 1, 2048, 119.53, 44),
        (8, 2, 24, 2, 2048, 122.75, 53),
        (4, 4, 24, 1, 2048, 130.60, None),
    )
)
