"""The pictures of the chapter on composing: each line, cell, bar and point is the plan's."""

import re
from dataclasses import replace
from itertools import pairwise, product

import pytest
from pictures import apart, inside, parse, tips, told, words

from weft.draw import composing as draw
from weft.draw.composing import atlas, lanes
from weft.explore import composing as explore
from weft.plan.composing import Layout, compared, why
from weft.plan.pipeline import overhead
from weft.plan.processes import groups, nodes
from weft.plan.shape import RECOMPUTE

PICTURES = {
    "odometer": draw.odometer_svg, "odometer of 24": lambda: draw.odometer_svg(3, 2, 4, 8),
    "lanes": draw.lanes_svg, "dealt": draw.dealt_svg,
    "dealt to 16": lambda: draw.dealt_svg(64, 16, 2),
    "dealt to one": lambda: draw.dealt_svg(64, 1, 4, 1),
    "steps": lambda: draw.steps_svg(draw.variants()), "long": lambda: draw.steps_svg(draw.long()),
    "published": draw.published_svg, "tried": draw.tried_svg, "atlas": draw.atlas_svg,
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stays_inside_its_edges_and_says_what_it_shows(name):
    picture = PICTURES[name]()
    root = inside(parse(picture))
    if name not in ("odometer", "odometer of 24", "published"):  # their labels stand in rows
        apart(root)
    assert len(told(root)) > 80
    assert PICTURES[name]() == picture


@pytest.mark.parametrize(("p", "d", "t", "node"), [(2, 2, 4, 8), (3, 2, 4, 8), (2, 3, 2, 4)])
def test_an_odometer_joins_the_neighbours_of_every_group(p, d, t, node):
    root = parse(draw.odometer_svg(p, d, t, node))
    seen = [tip for _, tip in tips(root) if "ranks" in tip]
    lengths = {"p": p, "d": d, "t": t}
    wanted = []
    for order in ("pdt", "tdp"):
        mesh = {axis: lengths[axis] for axis in order}
        for axis, name in (("p", "pipeline"), ("d", "data"), ("t", "tensor")):
            found = groups(mesh, axis)
            beside = (pair for group in found for pair in pairwise(group))
            wanted += [f"{name}: ranks {a} and {b}" for a, b in beside]
            away = sum(len(nodes(group, node)) > 1 for group in found)
            assert any(f"{axis} {away}/{len(found)}" in word for word in words(root))
    assert sorted(seen) == sorted(wanted)


def test_what_is_exposed_is_what_the_link_does_alone():
    for _, cells in lanes.CASES:
        alone = {t for a, b in lanes.exposed(cells) for t in range(int(a), int(b))}
        busy = {c.lane: set() for c in cells}
        for c in cells:
            busy[c.lane] |= set(range(int(c.start), int(c.end)))
        assert alone == busy[lanes.LINK] - busy[lanes.COMPUTE]
    names = [name for name, _ in lanes.CASES]
    assert [sum(b - a for a, b in lanes.exposed(cells)) for _, cells in lanes.CASES] == [
        8,
        8,
        8,
        0,
    ], names


@pytest.mark.parametrize(("d", "microbatch", "p"), [(1, 1, 1), (4, 1, 8), (16, 2, 4)])
def test_a_batch_is_dealt_out_whole_and_its_bubble_is_the_plans(d, microbatch, p):
    root = parse(draw.dealt_svg(64, d, microbatch, p))
    dealt = [tuple(map(int, found)) for _, tip in tips(root)
             for found in re.findall(r"sequences (\d+) to (\d+)", tip)]  # fmt: skip
    assert sorted(i for a, b in dealt for i in range(a, b + 1)) == list(range(64))
    m = len(dealt) // d
    assert any(f"{overhead(p, m):.0%} of the work" in word for word in words(root))
    box = explore.dealt(d=d, microbatch=microbatch, p=p)
    assert f"m = {m}:" in box


def test_a_batch_that_cannot_be_dealt_is_named():
    with pytest.raises(ValueError, match="must be a multiple of d"):
        draw.dealt_svg(64, 3)
    with pytest.raises(ValueError, match="must be at most"):
        draw.dealt_svg(1024)
    with pytest.raises(ValueError, match="must divide p d t"):
        draw.odometer_svg(2, 2, 2, 3)


def test_bars_are_as_long_as_steps_and_their_parts_add_up():
    rows = draw.variants()
    for _, found in rows:
        assert sum(draw.kinds(found).values()) == pytest.approx(found.seconds)
    widths = {}
    for mark, tip in tips(parse(draw.steps_svg(rows))):
        widths.setdefault(mark.get("y"), []).append((float(mark.get("width")), tip))
    longest = max(found.seconds for _, found in rows)
    for (_, found), bar in zip(rows, widths.values(), strict=True):
        assert sum(w for w, _ in bar) == pytest.approx(348.5 * found.seconds / longest, abs=0.1)
    with pytest.raises(ValueError, match="pairs of a name and an Estimate"):
        draw.steps_svg([("a", 1.0)])


def test_every_published_step_is_a_point_at_its_error():
    seen = [tip for _, tip in tips(parse(draw.published_svg()))]
    assert len(seen) == len(compared())
    for one in compared():
        assert any(tip.startswith(f"{one.step.name}, {one.step.layout}: ")
                   and tip.endswith(f"{one.error:+.1%}") for tip in seen)  # fmt: skip


def test_trials_are_drawn_with_both_times_and_ranked():
    seen = [tip for _, tip in tips(parse(draw.tried_svg()))]
    assert len(seen) == len(draw.tried()) >= 20
    best = draw.tried()[0].step.layout
    assert (best.t, best.p, best.d, best.microbatch) == (4, 12, 8, 2)  # BLOOM's
    first = min(draw.tried(), key=draw.said)
    assert 0.05 < draw.took(first) / draw.took(draw.tried()[0]) - 1 < 0.065
    assert 0.4 < draw.agreement() < 1


def test_the_map_has_the_fastest_of_its_candidates():
    shape, batch = atlas.SHAPES["gpt-7.5b"], 512
    layout, found = draw.best("gpt-7.5b", 32, batch, "400")
    assert found.fits and layout.devices == 32
    cluster = atlas._cluster(32, "400", 8)
    for other in atlas.candidates(shape, 32, batch, 8):
        try:
            said = atlas.estimate(shape, other, batch, cluster)
        except ValueError:
            continue
        assert not said.fits or said.seconds >= found.seconds
    assert draw.best("gpt-1t", 8, batch, "400") is None
    cells = [tip for _, tip in tips(parse(draw.atlas_svg(512, 400)))]
    some = [draw.best(m, n, 512, "400") for m, n in product(atlas.MODELS, atlas.DEVICES)]
    assert len(cells) == sum(one is not None for one in some)


def test_a_whole_node_of_tensor_ranks_is_best_for_the_two_largest_models_alone():
    """In the map's first state."""
    for model, devices in product(atlas.MODELS, atlas.DEVICES):
        found = draw.best(model, devices, 2048, "400")
        if found:
            assert (found[0].t == 8) == (model in ("mt-nlg-530b", "gpt-1t"))


def test_selective_recomputation_frees_nothing_beside_flash_attention():
    layout, found = draw.best("gpt-76b", 128, 2048, "400")
    assert layout.recompute == "selective"
    shape, cluster = atlas.SHAPES["gpt-76b"], atlas._cluster(128, "400", 8)
    none = atlas.estimate(shape, replace(layout, recompute="none"), 2048, cluster)
    assert none.memory == found.memory and none.seconds <= found.seconds


@pytest.mark.parametrize(
    ("layout", "kind"),
    [({}, "data"), ({"zero": 3}, "ZeRO-3"), ({"t": 2, "zero": 3}, "+ t"), ({"p": 2}, "+ p"),
     ({"t": 2, "p": 2}, "+ t, p")],
)  # fmt: skip
def test_a_kind_says_which_cuts_there_are(layout, kind):
    assert atlas.kind(Layout(**layout)) == kind and kind in atlas.KINDS


def test_a_layout_of_the_slider_is_named_with_its_memory_or_its_mistake():
    box = explore.step(t=8, p=8)
    assert "m = 96" in box and "MFU" in box and "more than the chip has" not in box
    assert "more than the chip has" in explore.step(t=1, p=8, recompute="none")
    assert "There is no picture" in explore.step(t=1, p=1, microbatch=4)
    assert "times as fast on 16 times as many" in explore.atlas(batch=512, between=400)


def test_a_runner_up_is_slower_and_its_reasons_are_the_plans():
    (_, first), (_, second) = draw.found()[:2]
    assert first.seconds <= second.seconds
    said = why(first, second)
    assert draw.reasons()[0] and all(part in said for part in draw.reasons())
    assert list(draw.ranked()) == sorted(draw.ranked()) and first.seconds <= draw.ranked()[0]


def test_the_design_problem_fits_and_is_as_fast_as_its_captions_say():
    short, long = ([cost for _, cost in rows()] for rows in (draw.short, draw.long))
    assert [cost.fits for cost in short] == [False, True, True, True, True]
    first, full, context = (cost.seconds for cost in short[:3])
    assert full > 1.3 * first and context < 1.01 * first
    assert [cost.fits for cost in long] == [False, False, True, True, True]
    assert long[2].seconds > 1.1 * max(long[3].seconds, long[4].seconds)  # the last two: ZeRO-3
    assert long[4].seconds == min(cost.seconds for cost in long if cost.fits)
    assert all(cost.parts["recompute"] > 5 for cost in long if cost.fits)


def test_a_70b_fits_64_gpus_without_a_pipeline_only_where_all_is_recomputed():
    how = {"d": 64, "zero": 3, "microbatch": 2}
    assert [draw.llama70(200, **how, recompute=name).fits for name in RECOMPUTE] == [0, 0, 1]
    late = [draw.llama70(gbit, **how, recompute="full").parts["data"] for gbit in (50, 100, 200)]
    assert late[0] > 4 and late[1] < 0.2  # hidden down to 100 Gbit/s
    cut = draw.llama70(200, t=4, p=4, d=4, v=4, zero=1)
    assert cut.fits and cut.parts["recompute"] == 0
