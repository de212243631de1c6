"""The pictures of the chapter on retention: each bar, curve and number is the plan's."""

import re

import pytest
from pictures import apart, inside, parse, tips, told

from weft.draw import retention as draw
from weft.explore import retention as explore
from weft.plan import linear, retention
from weft.plan.hardware import CHIPS
from weft.plan.units import quantity

PICTURES = {
    "edges": draw.edges_svg, "edges of 7": lambda: draw.edges_svg(7), "fades": draw.fades_svg,
    "knob": draw.knob_svg, "served": draw.served_svg,
    "served long": lambda: draw.served_svg(131072, 1, 1, 2, "1.3b"),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stays_inside_its_edges_and_says_what_it_shows(name):
    root = inside(parse(PICTURES[name]()))
    assert len(told(root)) > 80
    assert PICTURES[name]() == PICTURES[name]()


@pytest.mark.parametrize("C", [1, 4, 7])
def test_a_bar_crosses_as_many_lines_as_there_are_decays(C):
    root = parse(draw.edges_svg(C))
    lines = [float(x.get("x1")) for x in root.iter("{http://www.w3.org/2000/svg}line")]
    assert len(lines) == C
    seen = {"query": {}, "key": {}, "the state": {}}
    for mark, tip in tips(root):
        left = float(mark.get("x"))
        right = left + float(mark.get("width"))
        what, which = re.match(r"(query|key|the state)(?: (\d+))?", tip).groups()
        seen[what][int(which or 0)] = sum(left < x < right for x in lines)
        assert f"after {seen[what][int(which or 0)]} decays" in tip
    assert seen["the state"] == {0: C}
    assert seen["query"] == {i: i + 1 for i in range(C)}
    assert seen["key"] == {j: C - 1 - j for j in range(C)}
    with pytest.raises(ValueError, match="C is 9, must be at most 8"):
        draw.edges_svg(9)


def test_curves_pass_through_their_half_lives():
    root = apart(parse(draw.fades_svg()))
    for h in draw.SHOWN:
        half = retention.half_life(linear.DECAYS(h + 1)[h])
        assert any(
            tip == f"head {h}: half is left after {half:,.0f} tokens" for _, tip in tips(root)
        )


def test_a_norm_takes_out_factors_until_its_epsilon_is_as_large():
    assert draw.normed(5.0, 0) == draw.normed(0.005, 0) == 1
    assert draw.normed(1e-3, 1e-6) == pytest.approx(0.5**0.5)
    dots = [tip for _, tip in tips(parse(draw.knob_svg())) if " gives " in tip]
    assert ["10⁻³ gives 0.71" in dots[0], "10⁻⁴ gives 0.10" in dots[1]] == [True, True]
    assert len(dots) == 2


def test_the_slider_says_what_the_plan_says():
    said = explore.served(T=16384, batch=4, kv=8, state=2, model="2.7b")
    one = retention.RETNETS["2.7b"]
    cache, states = retention.of_cache(one, 1 / 4), retention.of_states(one, 2)
    for kept in (cache, states):
        assert quantity(kept.moved(4, 16384), "B") in said
        assert quantity(kept.bytes(4, 16384, 16), "B") in said
        assert f"{kept.most(0.9 * CHIPS['a100-80'].memory, 16384, 16):,}" in said
    assert f"{states.state / cache.token:,.0f} tokens" in said
    assert "none fits" in explore.served(T=131072, kv=32, model="6.7b")
    assert "There is no picture: kv is 5" in explore.served(kv=5)
    assert "There is no picture: T is 5" in explore.served(T=5)
    assert "There is no picture: model is" in explore.served(model="x")
