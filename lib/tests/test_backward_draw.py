"""The pictures of the backward chapter: each cell, bar and number is the plan's."""

import re

import pytest
from pictures import apart, inside, parse, tips, told, words

from weft.draw import backward as draw
from weft.explore import backward as explore
from weft.plan.backward import additions, step_timeline

PICTURES = {
    "jam": draw.jam_svg,
    "one panel": lambda: draw.jam_svg(7, 5, (2,)),
    "clock": draw.clock_svg,
    "outlier": draw.outlier_svg,
    "wide outlier": lambda: draw.outlier_svg(32),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stays_inside_its_edges_and_says_what_it_shows(name):
    root = apart(inside(parse(PICTURES[name]())))
    assert len(told(root)) > 80
    assert PICTURES[name]() == PICTURES[name]()


def test_every_step_of_the_jam_is_a_cell_where_it_happens():
    steps = additions(7, 5, 1, 5, True, "up")
    found = {}
    for mark, tip in tips(parse(draw.jam_svg(7, 5, (2,)))):
        key, query = map(int, re.match(r"keys (\d) add to dQ (\d)", tip).groups())
        found[key, query] = float(mark.get("x"))
    assert found.keys() == {(one.key, one.query) for one in steps}
    for a in steps:
        for b in steps:
            if a.start < b.start:
                assert found[a.key, a.query] < found[b.key, b.query]
    assert draw.waited(steps) == sum(
        max(o.added for o in steps if o.key == key) - sum(o.key == key for o in steps)
        for key in range(5)
    )


def test_the_clock_says_the_share_of_both_orders():
    said = [word for word in words(parse(draw.clock_svg())) if word.startswith("tensor cores")]
    shares = []
    for way in (False, True):
        start = {one.step: one.start for one in step_timeline(_tile(), 8, way) if one.name == "S"}
        shares.append(2560 / (start[5] - start[4]))
    assert said == [f"tensor cores {100 * share:.1f} %" for share in shares]


def _tile():
    return draw.BACKWARD_TILES[128, True]


def test_the_outlier_is_one_bar_and_then_none():
    plain, rotated = draw.outlier_pair()
    assert max(map(abs, plain.q)) > 3 * max(map(abs, rotated.q))
    said = words(parse(draw.outlier_svg()))
    assert f"{plain.off:+.1f}" in said and f"{rotated.off:+.1f}" in said


@pytest.mark.parametrize("mask", explore.MASKS)
@pytest.mark.parametrize("rows", ["up", "down", "shifted", "spt"])
@pytest.mark.parametrize("adds", explore.ADDS)
def test_the_slider_has_a_picture_or_says_why_not(mask, rows, adds):
    for tiles, handoff in ((3, 0), (10, 75)):
        box = explore.jam(mask=mask, rows=rows, adds=adds, tiles=tiles, handoff=handoff)
        if mask == "causal" and rows == "shifted":
            assert "<svg" not in box and "rows is &#x27;shifted&#x27;" in box
        else:
            inside(parse(box))
            assert "of the time" in box
