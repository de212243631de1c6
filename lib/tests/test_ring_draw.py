"""The pictures of the chapter on ring attention: each bar, cell and number is the plan's."""

import re
from itertools import product

import pytest
from pictures import apart, inside, parse, tips, told, words

from weft.draw import ring as draw
from weft.explore import ring as explore
from weft.plan import ring
from weft.plan.collectives import BOXES

PICTURES = {
    "jars": draw.jars_svg, "fold": draw.fold_svg, "fold of 2": lambda: draw.fold_svg(2),
    "tour": draw.tour_svg, "tour of 4": lambda: draw.tour_svg(4), "steps": draw.steps_svg,
    "steps of 8": lambda: draw.steps_svg(8, "striped"), "step of 1": lambda: draw.steps_svg(1),
    "best": draw.best_svg, "best apart": lambda: draw.best_svg(8192, 64, "nvl72", 1, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stays_inside_its_edges_and_says_what_it_shows(name):
    root = apart(inside(parse(PICTURES[name]())))
    assert len(told(root)) > 80
    assert PICTURES[name]() == PICTURES[name]()


def test_pouring_jars_is_the_average_over_all_keys():
    layers = [layer for part in draw.PARTS for layer in part]
    weight = sum(high for high, _ in layers)
    mean = sum(high * value for high, value in layers) / weight
    assert draw.poured(layers) == (weight, mean)
    assert f"average {mean:g}" in words(parse(draw.jars_svg()))


@pytest.mark.parametrize("n", [1, 3, 4])
def test_the_fold_is_the_zigzag_of_the_plan_and_its_piles_are_equal(n):
    root = parse(draw.fold_svg(n))
    seen = {}
    for mark, tip in tips(root):
        found = re.match(r"chunk (\d+) of \d+, rank (\d+): its queries see ([\d.]+)", tip)
        if found:
            chunk, rank, sees = int(found[1]), int(found[2]), float(found[3])
            seen.setdefault(rank, []).append((chunk, sees, float(mark.get("height"))))
    held = ring.positions(2 * n, n, "zigzag")
    for rank, bars in seen.items():
        folded = bars[2:]  # the first two are those of the contiguous strip
        assert sorted(chunk for chunk, _, _ in folded) == list(held[rank])
        assert sum(sees for _, sees, _ in folded) == 2 * n
        assert all(high == pytest.approx(9 * sees, abs=0.01) for _, sees, high in bars)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_gradient_has_all_stamps_when_it_is_home_and_not_before(n):
    stamps = {}
    for _, tip in tips(parse(draw.tour_svg(n))):
        block, rank, what, ranks = re.match(
            r"block (\d) on rank (\d); its gradient (home with|has) the parts of ranks (.*)", tip
        ).groups()
        stamps.setdefault(int(block), []).append((what, int(rank), len(ranks.split(", "))))
    for block, visits in stamps.items():
        assert sorted(count for what, _, count in visits if what == "has") == list(range(1, n + 1))
        assert [(rank, count) for what, rank, count in visits if what == "home with"] == [
            (block, n)
        ]


@pytest.mark.parametrize("layout", ring.LAYOUTS)
def test_a_cell_of_a_schedule_is_as_long_as_its_pairs(layout):
    n, root = 4, parse(draw.steps_svg(4, layout))
    work = ring.work(4 * 240, 4, layout)
    scale, found = set(), 0
    for mark, tip in tips(root):
        cell = re.match(r"rank (\d), step (\d): keys of rank (\d)", tip)
        if cell:
            rank, step, source = map(int, cell.groups())
            assert source == (rank - step) % n
            scale.add(round((float(mark.get("width")) + 2) / work[rank][step] * 240**2, 1))
            found += 1
    assert len(scale) <= 2 and max(scale) - min(scale) < 0.2
    assert found == sum(pairs > 0 for row in work for pairs in row)
    with pytest.raises(ValueError, match="n is 9, must be at most 8"):
        draw.steps_svg(9)


def test_the_map_shows_the_fastest_way():
    root = parse(draw.best_svg(G=8, merged=0.9))
    cells = [tip for _, tip in tips(root)]
    assert len(cells) == len(draw.LENGTHS) * len(draw.RANKS)
    way, cost = next(iter(draw.costs(131072, 16, "dgx-h100", 8, 0.9).items()))
    assert f"128k tokens on 16 GPUs: {way}, {cost:.2f} times computing alone" in cells
    alone = ring.computed_seconds(131072, 16, BOXES["dgx-h100"], 32, 128)
    for method, ratio in draw.costs(131072, 16, "dgx-h100", 8, 0.9).items():
        how = 131072, 16, BOXES["dgx-h100"], 32, 8, 128, method
        seconds = ring.pass_seconds(*how, merged=0.9, again=True)
        assert seconds / alone == ratio >= cost


def test_the_map_of_8_kv_heads_is_as_the_page_reads_it():
    first = {}
    for merged, n, T in product((0.9, 1.0), draw.RANKS, draw.LENGTHS):
        first[merged, n, T] = next(iter(draw.costs(T, n, "dgx-h100", 8, merged).items()))
    rings = [merged for (merged, _, _), (way, _) in first.items() if way == "ring"]
    assert rings.count(0.9) <= 5 and rings.count(1.0) > 30  # few at 90 %, most at 100
    for (merged, n, T), (way, cost) in first.items():
        if merged == 1:
            assert way == "ring" or n > 8
        else:
            assert cost >= 1.115 or n < 16 or T / n >= 8000
            assert cost <= 1.03 or max(draw.LENGTHS) != T
    for n, each in product((16, 32), (8192, 16384)):
        how = n * each, n, BOXES["dgx-h100"], 32, 8, 128
        copied = ring.pass_seconds(*how, "ulysses", again=True, copied=True)
        assert copied == pytest.approx(ring.pass_seconds(*how, "gather", again=True), rel=0.01)


def test_a_larger_group_costs_the_design_problem_almost_nothing():
    """Seconds of attention for each sequence, of groups of 2 and of 8 on 16 GPUs."""
    two, eight = (
        ring.pass_seconds(131072, n, BOXES["dgx-h100"], 32, 8, 128, "ulysses", again=True) * n
        for n in (2, 8)
    )
    assert 1 < eight / two < 1.02


def test_the_sliders_say_what_the_plan_says():
    said = explore.balance(layout="contiguous", n=8)
    assert "7.5 blocks" in said and "53.3" in said and "56.2" in said
    assert "as fast as contiguous" not in said
    assert "1.87 times as fast as contiguous" in explore.balance(layout="zigzag", n=8)
    said = explore.best(T=131072, n=16, box="dgx-h100", G=1, merged=100)
    assert "do not divide for all-to-all and grid. Copies of kv heads are not counted." in said
    assert "ring 1.0" in said and "Copies" not in explore.best(n=8)
    for wrong in ({"T": 5}, {"n": 3}, {"box": "x"}, {"G": 5}):
        assert "There is no picture: " in explore.best(**wrong)
    assert "There is no picture: layout is" in explore.balance(layout="x")
