"""The pictures of the chapter on Griffin: each cell, block and curve is the plan's."""

import re

import pytest
from pictures import inside, parse, tips, told

from weft.draw import griffin as draw
from weft.explore import griffin as explore
from weft.plan import griffin
from weft.plan.hardware import CHIPS
from weft.plan.units import percent, quantity

PICTURES = {
    "gate": draw.gate_svg, "gate far from 1": lambda: draw.gate_svg(1.0), "kept": draw.windows_svg,
    "passes": draw.passes_svg, "ring": draw.ring_svg, "ring of 6": lambda: draw.ring_svg(6, 9),
    "blocks": draw.blocks_svg, "blocks of 12": lambda: draw.blocks_svg(12, 3),
    "reach": draw.reach_svg, "reach wide": lambda: draw.reach_svg("a100-80", 512, 131072, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stays_inside_its_edges_and_says_what_it_shows(name):
    root = inside(parse(PICTURES[name]()))
    assert len(told(root)) > 80
    assert PICTURES[name]() == PICTURES[name]()


@pytest.mark.parametrize(("window", "T"), [(1, 3), (3, 8), (4, 2)])
def test_a_ring_holds_the_last_window_of_positions(window, T):
    held = {t: {} for t in range(T)}
    for _, tip in tips(parse(draw.ring_svg(window, T))):
        t, slot, position = map(int, re.findall(r"\d+", tip))
        held[t][slot] = position
    for t, slots in held.items():
        assert sorted(slots.values()) == list(range(max(0, t - window + 1), t + 1))
        assert all(position % window == slot for slot, position in slots.items())
    with pytest.raises(ValueError, match="window is 7, must be at most 6"):
        draw.ring_svg(7)


def test_each_block_is_the_one_rank_that_has_its_channels():
    found = [tip for _, tip in tips(parse(draw.blocks_svg(7, 3)))]
    owners = [int(re.search(r"rank (\d)", tip)[1]) for tip in found]
    assert [owners.count(rank) for rank in range(3)] == griffin.blocks_of_rank(7, 3)
    assert owners == sorted(owners)
    with pytest.raises(ValueError, match="blocks is 13 and t is 5, must be at most 12 and 4"):
        draw.blocks_svg(13, 5)


def test_chunks_have_as_many_times_the_loads_as_there_are_chunks():
    root = parse(draw.passes_svg())
    loads = [tip for _, tip in tips(root) if tip.endswith("being loaded")]
    one, chunks, again = (int(n) for n in (len(loads) / 7, len(loads) * 3 / 7, len(loads) * 3 / 7))
    assert one * 3 == chunks == again and f"{one} in all" in told(root)
    assert f"{chunks} in all" in told(root)


def test_both_scans_meet_where_the_plan_says_and_chunks_use_three_fifths():
    for chip in ("a100-80", "h200"):
        meet = griffin.least_channels(CHIPS[chip])
        for channels in (round(0.9 * meet), round(1.1 * meet)):
            one = draw.scan_share(chip, 65536, channels)
            parts = draw.split(chip, 65536, channels)
            chunks = draw.scan_share(chip, 65536, channels, chunks=parts)
            assert chunks == pytest.approx(0.6)
            assert (one > chunks) == (channels > meet)


def test_the_slider_says_what_the_plan_says():
    said = explore.scans(chip="h100", T=4096, channels=512, ahead=8)
    chunks = draw.split("h100", 4096, 512, 8)
    for n in (1, chunks):
        took = griffin.scan_seconds(CHIPS["h100"], 1, 4096, 512, chunks=n, ahead=8)
        share = percent(draw.scan_share("h100", 4096, 512, 8, n), 3)
        assert quantity(took, "s") in said and share.replace(" %", "\u00a0%") in said
    assert f"Faster: {chunks} chunks" in said
    assert "Faster: one pass" in explore.scans(channels=32768)
    assert "There is no picture: T is 5" in explore.scans(T=5)
    assert "There is no picture: channels is 5" in explore.scans(channels=5)
    assert "There is no picture: chip is" in explore.scans(chip="x")
    assert "There is no picture: ahead is 0" in explore.scans(ahead=0)
