"""The pictures of the chapter on tensor parallelism: each part, bar and ring is the plan's."""

import re
from itertools import pairwise

import pytest
from pictures import apart, inside, parse, tips, told, words

from weft.draw import tensor as draw
from weft.draw.tensor.conjugate import FLOWS
from weft.explore import tensor as explore
from weft.plan import tensor
from weft.plan.hardware import CHIPS, LINKS
from weft.plan.units import moment

PICTURES = {
    "cut": draw.cut_svg, "cut of 2": lambda: draw.cut_svg(2, 5),
    "cut of 4": lambda: draw.cut_svg(4, 9), "conjugate": draw.conjugate_svg,
    "fused": draw.fused_svg, "fused of 2": lambda: draw.fused_svg(2, 2),
    "wall": draw.wall_svg, "wall of a B200": lambda: draw.wall_svg(4096, "b200"),
    "layer": draw.layer_svg, "layer apart": lambda: draw.layer_svg(4, 2048, "a100-80", "ib-hdr"),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stays_inside_its_edges_and_says_what_it_shows(name):
    root = apart(inside(parse(PICTURES[name]())))
    assert len(told(root)) > 80
    assert PICTURES[name]() == PICTURES[name]()


@pytest.mark.parametrize(("t", "hidden"), [(2, 5), (3, 8), (4, 9)])
def test_a_rank_has_the_rows_that_its_neurons_meet(t, hidden):
    counts = tensor.shares(hidden, t)
    found = {}
    for mark, tip in tips(parse(draw.cut_svg(t, hidden))):
        if match := re.match(rf"rank (\d): (\d+) of {hidden} (columns|neurons|rows)", tip):
            rank, many, kind = int(match[1]), int(match[2]), match[3]
            assert many == counts[rank]
            side = "height" if kind == "rows" else "width"
            found[rank, kind] = float(mark.get(side)) / many
    assert len(found) == 3 * t
    assert max(found.values()) - min(found.values()) < 0.02  # one scale for all


def test_an_exchange_is_the_others_transpose_in_either_pass():
    back = {"copy": "all-reduce", "all-gather": "reduce-scatter"}
    back |= {there: here for here, there in back.items()}
    for (_, outside, near, far), (_, same, near_back, far_back) in zip(
        FLOWS[::2], FLOWS[1::2], strict=True
    ):
        assert outside == same
        assert (near_back, far_back) == (back[near], back[far]) == (far, near)


def test_cut_at_one_stroke_a_rank_multiplies_gates_with_gates():
    said = [word for word in words(parse(draw.fused_svg())) if word[0] in "gu" and len(word) == 2]
    matrix, wrong, again, right = said[:8], said[8:16], said[16:24], said[24:]
    assert matrix == again
    assert {
        first[0] == second[0] for first, second in zip(wrong[::2], wrong[1::2], strict=True)
    } == {True}
    for gate, up in zip(right[::2], right[1::2], strict=True):
        assert (gate[0], up[0]) == ("g", "u") and gate[1] == up[1]


def test_the_curves_of_the_wall_cross_where_the_plan_says():
    root = parse(draw.wall_svg(8192, "h100"))
    found = [tip for _, tip in tips(root)]
    for link, name in (("nvlink4", "NVLink"), ("ib-ndr", "one NDR port each")):
        at = tensor.wall(8192, CHIPS["h100"], LINKS[link], share=draw.REACHED)
        assert f"{name}: sending is longer beyond t = {at:.1f}" in found
    dots = sorted(float(mark.get("cx")) for mark, tip in tips(root) if "beyond t" in tip)
    lines = [path.get("d") for path in root.iter() if path.tag.endswith("path")]
    computing, *sending = (
        [
            tuple(map(float, re.findall(r"[\d.]+", point)))
            for point in re.findall(r"[ML][^ML]*", line)
        ]
        for line in lines
    )
    for curve, dot in zip(sending[::-1], dots, strict=True):  # as dots go, from the left
        near = min(pairwise(curve), key=lambda pair: abs(pair[0][0] - dot))
        (x, y), (right, below) = near
        here = y + (below - y) * (dot - x) / ((right - x) or 1)
        (x, y), (right, below) = computing[0], computing[-1]
        assert here == pytest.approx(y + (below - y) * (dot - x) / (right - x), abs=0.6)


def test_the_bars_of_a_layer_are_its_times_and_bytes():
    how = draw.dense(4096), 1, 16, CHIPS["h100"], LINKS["ib-ndr"]
    time = tensor.layer_time(*how, share=draw.REACHED)
    said = [tip for _, tip in tips(parse(draw.layer_svg(16, 4096, "h100", "ib-ndr")))]
    most = max(
        tensor.layer_time(*how[:2], t, *how[3:], share=draw.REACHED).seconds
        for t in (1, 2, 4, 8, 16, 32)
    )
    assert f"t = 16: sending {moment(time.sending, 's', most)}" in said
    stored = draw.bytes_kept(4096, 16)
    assert list(stored.values()) == sorted(stored.values(), reverse=True)
    assert stored["1 GPU"] == 16 * stored["+ gather again"]


def test_the_slider_says_what_the_plan_says():
    said = explore.layer(t=8, width=8192)
    assert "beyond t = 19.6" in said and "97.7" in said
    for wrong in ({"t": 3}, {"chip": "x"}, {"link": "x"}, {"width": 100}, {"t": 64, "width": 4096}):
        assert "There is no picture: " in explore.layer(**wrong)
