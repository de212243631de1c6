"""The pictures of the chapter on experts: each token, load and line is the plan's."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from pictures import apart, inside, parse, tips, told, words

from weft.bench.record import read
from weft.draw import experts as draw
from weft.draw.experts.office import CHOICES, EXPERTS
from weft.explore import experts as explore
from weft.plan.experts import capacity, drop_share, dropped, loads


def record(root=Path(__file__).parents[2]):
    return read(root / "book/measured/experts-balance.cpu.json")


PICTURES = {
    "switchboard": draw.switchboard_svg, "office": draw.office_svg, "chairs": draw.chairs_svg,
    "chairs of 8": lambda: draw.chairs_svg(8, 4), "loads": draw.loads_svg,
    "collapse": lambda: draw.collapse_svg(record()),
    "loads of 64": lambda: draw.loads_svg(64, 4, 1.0, 1.0),
    "loads of 8": lambda: draw.loads_svg(8, 1, 4.0, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stays_inside_its_edges_and_says_what_it_shows(name):
    root = apart(inside(parse(PICTURES[name]())))
    assert len(told(root)) > 80
    assert PICTURES[name]() == PICTURES[name]()


def test_tokens_of_the_office_are_at_their_experts_and_come_home():
    places = {}
    for mark, tip in tips(parse(draw.office_svg())):
        moment, token, rank, expert = re.match(
            r"(.*): token (\d) of rank (\d), for expert (\d)", tip
        ).groups()
        assert CHOICES[int(rank)][int(token)] == int(expert)
        column = int(float(mark.get("x")) // 118)
        places.setdefault(moment, {})[int(rank), int(token)] = column, float(mark.get("x"))
    tokens = {(r, i): e for r, row in enumerate(CHOICES) for i, e in enumerate(row)}
    assert all(places["at the experts"][t][0] == e // EXPERTS for t, e in tokens.items())
    assert places["as they come"] == places["home, in order"]
    assert len(set(places["at the experts"].values())) == len(tokens)
    assert "2,1 1,0 1,1" in words(parse(draw.office_svg()))


def test_chairs_of_a_colour_hold_the_same_and_16_is_the_only_world_for_rows_of_four():
    held = [tip for _, tip in tips(parse(draw.chairs_svg(16, 2, 4)))]
    assert len(held) == 32
    assert "rank 6 holds part 0 of the attention" in held
    assert "rank 6 holds part 2 of the experts" in held
    with pytest.raises(ValueError, match="n is 16, t 3 and e 4"):
        draw.chairs_svg(16, 3, 4)
    with pytest.raises(ValueError, match="n is 12, t 3 and e 4"):
        draw.chairs_svg(12, 3, 4)


def test_frames_of_the_chairs_are_tensor_groups_and_groups_of_experts():
    marks = parse(draw.chairs_svg(16, 2, 4)).iter()
    framed = [mark.get("width") for mark in marks if mark.get("stroke-dasharray")]
    assert framed == ["74.5"] * 8 + ["150.5"] * 4


@pytest.mark.parametrize(("E", "k", "factor", "skew"), [(16, 1, 1.25, 0.5), (8, 2, 1.0, 1.0)])
def test_bars_are_as_high_as_loads_and_orange_above_the_capacity(E, k, factor, skew):
    root = parse(draw.loads_svg(E, k, factor, skew))
    counts, most = loads(draw.TOKENS, E, k, skew), capacity(draw.TOKENS, E, factor, k)
    high = {}
    for mark, tip in tips(root):
        i, count, lost = map(int, re.findall(r"\d+", tip))
        assert (count, lost) == (counts[i], max(0, counts[i] - most))
        high[i] = high.get(i, 0) + float(mark.get("height"))
    scale = {round(high[i] / count, 1) for i, count in enumerate(counts)}
    assert max(scale) - min(scale) <= 0.11
    assert str(most) in [word.replace(",", "") for word in words(root)]


def test_a_collapse_is_drawn_from_the_samples_of_its_record():
    points = [tip for _, tip in tips(parse(draw.collapse_svg(record())))]
    rows = {one.who: one.samples for one in record().results if one.name == "the fullest expert"}
    assert points == [
        f"{way}, step {20 * i + 10}: {share:.0%}"
        for way, row in rows.items() for i, share in enumerate(row)
    ]  # fmt: skip
    with pytest.raises(ValueError, match="record has no result called 'the fullest expert'"):
        draw.collapse_svg(SimpleNamespace(results=()))
    with pytest.raises(ValueError, match="record is 3, must be"):
        draw.collapse_svg(3)


def test_the_slider_says_what_the_plan_says():
    said = explore.drops(E=64, k=1, factor=1.0, skew=0.0)
    lost = dropped(loads(1024, 64), capacity(1024, 64, 1.0)) / 1024
    assert f"Dropped: {100 * lost:.1f}".rstrip("0") in said
    assert f"{100 * drop_share(1024, 64, 1.0):.1f}".rstrip("0").rstrip(".") in said
    assert "Empty" in said and "an expert takes 16" in said
    for wrong in ({"E": 0}, {"k": 99}, {"factor": 0.0}, {"skew": -1.0}):
        assert "There is no picture: " in explore.drops(**wrong)
