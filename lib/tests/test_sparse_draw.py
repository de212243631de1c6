"""The pictures of the chapter on sparse attention: each square, number and share is the plan's."""

import re

import pytest
from pictures import apart, inside, parse, tips, told, words

from weft.draw import sparse as draw
from weft.explore import sparse as explore
from weft.plan import sparse

PICTURES = {
    "tiles": draw.tiles_svg, "tiles of 64": lambda: draw.tiles_svg(64, 5, 3, 2, 8, "both"),
    "cone": draw.cone_svg, "lists": draw.lists_svg, "even": draw.even_svg,
    "even apart": lambda: draw.even_svg(128, 256, 600),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stays_inside_its_edges_and_says_what_it_shows(name):
    root = apart(inside(parse(PICTURES[name]())))
    assert len(told(root)) > 80
    assert PICTURES[name]() == PICTURES[name]()


@pytest.mark.parametrize("given", [(24, 9, 1, 1, 4), (30, 3, 3, 0, 7), (16, 0, 1, 3, 5)])
@pytest.mark.parametrize("sides", ["causal", "both"])
def test_each_block_that_is_drawn_holds_a_pair_and_no_other_does(given, sides):
    T, window, dilation, globals, block = given
    rest = window, dilation, globals, sides == "causal"
    root = parse(draw.tiles_svg(*given, sides))
    drawn = {}
    for _, tip in tips(root):
        found = re.fullmatch(r"row (\d+), column (\d+): (full|partial)", tip)
        drawn[int(found[1]), int(found[2])] = found[3]
    assert set(drawn) == sparse.blocks(T, block, *rest)
    seen = draw.seen(T, *rest)
    assert sum(map(len, seen)) == sparse.pairs(T, *rest)
    for (r, c), kind in drawn.items():
        rows = range(r * block, min(T, (r + 1) * block))
        held = sum(c * block <= j < (c + 1) * block for i in rows for j in seen[i])
        assert (held == block**2) == (kind == "full")
    with pytest.raises(ValueError, match="T is 65, must be at most 64"):
        draw.tiles_svg(65)


def test_shares_of_a_layer_add_up_and_equal_dilations_have_holes():
    for dilations in draw.STACKS.values():
        assert sum(draw.reached(dilations).values()) == pytest.approx(1)
    plain, holes, grown = (set(draw.reached(dilations)) for dilations in draw.STACKS.values())
    assert plain == set(range(7))
    assert holes == set(range(0, 13, 2))
    assert grown == set(range(15))
    shown = {tip for _, tip in tips(parse(draw.cone_svg()))}
    assert "three windows of 3, 6 back: 3.7 %" in shown


def test_the_lists_are_those_of_the_blocks():
    text = words(parse(draw.lists_svg()))
    squares = draw.kinds(24, 4, 9, globals=1)
    counts = [sum(r == i for r, _ in squares) for i in range(6)]
    starts = [sum(counts[:i]) for i in range(7)]
    said = re.sub(r" +", " ", " ".join(text))
    assert f"starts {' '.join(map(str, starts))}" in said
    full = [sum(r == i and kind == "full" for (r, _), kind in squares.items()) for i in range(6)]
    turns = [start + n for start, n in zip(starts, full, strict=False)]
    assert f"partial from {' '.join(map(str, turns))}" in said


def test_the_sliders_say_what_the_plan_says():
    said = explore.tiles(T=32, window=9, dilation=1, globals=0, block=4, sides="causal")
    assert f"{sparse.pairs(32, 9, causal=True)} pairs" in said
    assert f"{sparse.touched(32, 4, 9, causal=True)} blocks" in said
    said = explore.even(keys=1024, block=128, ratio=200, T=8192)
    assert f"from {sparse.break_even(128, 1023, 2):,} tokens on" in said
    assert "takes 0.52 of the time: 1.9 times as fast, not 4.3" in said
    for box, wrong in ((explore.tiles, {"sides": "x"}), (explore.even, {"ratio": 50})):
        assert "There is no picture: " in box(**wrong)
