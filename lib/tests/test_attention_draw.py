"""The pictures of the attention chapter: every tile, bar and point is where the plan says."""

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import product

import pytest
from pictures import SVG, apart, inside, parse, words

from weft.draw.attention.backward import MADE, MATMULS, SUMMED, backward_svg
from weft.draw.attention.lifetimes import lifetimes_svg, runs
from weft.draw.attention.masks import CELL, GAP, PANEL, PANELS, TILE_K, TILE_Q, masks_svg
from weft.draw.attention.online import online_svg
from weft.draw.attention.orders import orders_svg
from weft.draw.attention.tiles import tiles_svg
from weft.draw.attention.traffic import MEMORIES, moved, smooth, traffic_svg
from weft.draw.figure import measure
from weft.explore import attention as explore
from weft.plan.attention import kinds, online
from weft.plan.attention import tiling as plan
from weft.plan.attention.warps import shared
from weft.plan.attention.work import operations
from weft.plan.units import quantity

FORWARD, AT_WORK = "#56B4E9", "#F0E442"
CASES = [  # T, S, tile_q, tile_k
    (10, 14, 3, 4),
    (14, 10, 4, 3),
    (5, 5, 2, 2),
    (1, 9, 1, 4),
    (9, 4, 2, 3),
    (40, 40, 7, 9),
]


def boxes(path):
    """The rectangles of a path of boxes, (x, y, width, height)."""
    found = re.findall(r"M(\S+) ([\d.]+)h([\d.]+)v([\d.]+)h", path.get("d"))
    return [tuple(map(float, box)) for box in found]


def sides(rect):
    return tuple(float(rect.get(side)) for side in ("x", "y", "width", "height"))


def tiles_of(root):
    """The tiles that are looked at: visit -> (queries, keys, share, sides, fill)."""
    found = {}
    for rect in root.iter(f"{SVG}rect"):
        tip = rect[0].text if len(rect) else ""
        match = re.fullmatch(r"visit (\d+): queries (.+), keys (.+), (\w+) seen", tip)
        if match:
            visit, rows, cols, share = match.groups()
            found[int(visit)] = (span(rows), span(cols), share, sides(rect), rect.get("fill"))
    return found


def span(text):
    first, _, last = text.partition(" to ")
    return range(int(first), int(last or first) + 1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", ["fa1", "fa2"])
@pytest.mark.parametrize("causal", [False, True])
def test_tiles_lie_over_their_scores_in_the_order_of_visits(case, order, causal):
    T, S, *cut = case
    root = parse(tiles_svg(*case, order, causal))
    path = plan.visits(*case, order, causal)
    tiles = tiles_of(root)
    assert list(tiles) == sorted(tiles) or order == "fa1"
    each = 320 / max(T, S)
    left = min(x for *_, (x, _, _, _), _ in tiles.values())
    tops = {i: y for rows, _, _, (_, y, _, _), _ in tiles.values() for i in [rows.start]}
    top = tops[min(tops)] - min(tops) * each
    for visit, (rows, cols) in enumerate(path, 1):
        drawn_rows, drawn_cols, share, box, fill = tiles[visit]
        assert (drawn_rows, drawn_cols) == (range(T)[rows], range(S)[cols])
        assert share == plan.looks(rows, cols, T, S, causal)
        want = (left + cols.start * each, top + rows.start * each)
        want += ((cols.stop - cols.start) * each, (rows.stop - rows.start) * each)
        assert box == pytest.approx(want, abs=0.02)
        assert fill == FORWARD
    assert f"{len(path)} are looked at" in root[1].text
    skipped = [b for p in root.iter(f"{SVG}path") if p.get("fill-opacity") == ".06"
               for b in boxes(p)]  # fmt: skip
    assert len(skipped) == len(plan.cuts(T, cut[0])) * len(plan.cuts(S, cut[1])) - len(path)


@pytest.mark.parametrize("case", CASES)
def test_what_is_computed_in_vain_is_shaded(case):
    T, S, *_ = case
    root = parse(tiles_svg(*case, causal=True))
    each = 320 / max(T, S)
    shaded = [b for p in root.iter(f"{SVG}path") if p.get("fill-opacity") == ".3"
              for b in boxes(p)]  # fmt: skip
    hidden = plan.scores_seen(*case, causal=True)
    hidden -= sum(max(0, min(S, i + S - T + 1)) for i in range(T))
    area = sum(wide * high for _, _, wide, high in shaded) / each**2
    assert area == pytest.approx(hidden, rel=0.01)
    assert all(high == pytest.approx(each, abs=0.02) for *_, high in shaded)


@pytest.mark.parametrize("case", CASES[:2])
@pytest.mark.parametrize("order", ["fa1", "fa2"])
def test_a_step_marks_what_is_in_memory_and_how_far_each_output_is(case, order):
    T, _, tile_q, _ = case
    path = plan.visits(*case, order, causal=True)
    for step in (1, len(path) // 2, len(path)):
        root = parse(tiles_svg(*case, order, causal=True, step=step))
        tiles = tiles_of(root)
        for visit, (*_, fill) in tiles.items():
            assert (fill == AT_WORK) == (visit == step)
            assert (fill == FORWARD) == (visit < step)
        _, _, _, (x, y, wide, high), _ = tiles[step]
        bright = [r for r in root.iter(f"{SVG}rect") if r.get("fill") == AT_WORK and not len(r)]
        marked = [sides(r) for r in bright if float(r.get("y")) > 20]  # not the legend's
        assert len(marked) == 3  # in K, in V and in Q: in line with the tile of scores
        assert [(a, c) for a, b, c, d in marked[:2]] == [(x, wide)] * 2
        assert marked[2][1::2] == (y, high)
        outputs = {}
        for rect in root.iter(f"{SVG}rect"):
            match = re.match(r"queries (.+): (\d+) of (\d+)", rect[0].text if len(rect) else "")
            if match:
                outputs[span(match[1])] = int(match[2]), int(match[3])
        for tile in plan.cuts(T, tile_q):
            mine = [i for i, (r, _) in enumerate(path, 1) if r == tile]
            assert outputs[range(T)[tile]] == (sum(i <= step for i in mine), len(mine))
        assert f"At visit {step} the tile memory holds queries" in root[1].text


@pytest.mark.parametrize("causal", [False, True])
def test_an_arrow_goes_through_the_tiles_of_a_program_in_the_order_of_visits(causal):
    sizes = 300, 420, 64, 32, 2, 70, 90
    root = parse(orders_svg(*sizes, warps=3, causal=causal))
    panels = [g for g in root.iter(f"{SVG}g") if "translate" in g.get("transform", "")]
    for order, panel in zip(("fa2", "fa1"), panels, strict=True):
        path = plan.visits(300, 420, 70, 90, order, causal)
        lines = [p for p in panel.iter(f"{SVG}path") if p.get("stroke-linejoin")]
        each = [[tuple(map(float, xy.split())) for xy in p.get("d")[1:].split("L")] for p in lines]
        rows = [sum(r == tile for r, _ in path) for tile in plan.cuts(300, 70)]
        assert [len(line) for line in each] == (rows if order == "fa2" else [len(path)])
        points = [point for line in each for point in line]
        scale = 150 / 420
        centres = [
            ((c.start + c.stop) / 2 * scale, (r.start + r.stop) / 2 * scale) for r, c in path
        ]
        dx, dy = points[0][0] - centres[0][0], points[0][1] - centres[0][1]
        for point, (x, y) in zip(points, centres, strict=True):
            assert point == pytest.approx((x + dx, y + dy), abs=0.02)
        read, written = plan.traffic(*sizes, order, causal)
        assert f"reads {quantity(read, 'B')}, writes {quantity(written, 'B')}" in words(panel)
        passed = shared(*sizes, 3, "k" if order == "fa1" else "q", causal).exchanged
        assert f"exchange {quantity(passed, 'B') if passed else 'nothing'}" in words(panel)
    assert "exchange nothing" not in words(panels[1])


@pytest.mark.parametrize(("N", "d", "causal"), [(4096, 64, False), (1 << 16, 128, True)])
def test_points_are_exact_counts_and_lines_the_closed_form(N, d, causal):
    root = apart(inside(parse(traffic_svg(N, d, 2, 96, causal))))
    *circles, ring = list(root.iter(f"{SVG}circle"))
    points = {}
    for circle in circles:
        if len(circle):
            name, kib, count = re.fullmatch(r"(.+), (\d+) KiB: (.+)", circle[0].text).groups()
            points[name, int(kib)] = float(circle.get("cx")), float(circle.get("cy")), count
    names = {"three kernels": "naive", "FlashAttention-1": "fa1", "FlashAttention-2": "fa2"}
    assert set(points) == {(name, m) for name in names for m in MEMORIES}
    labels = {t.text: float(t.get("x")) for t in root.iter(f"{SVG}text") if t.text.isdigit()}
    (x0, x1), (m0, m1) = ((labels[str(m)] for m in (32, 448)), (32, 448))
    ends = [points["three kernels", 32], points["FlashAttention-2", 448]]
    heights = [math.log(moved(N, d, 2, m, o, causal)) for m, o in ((32, "naive"), (448, "fa2"))]
    slope = (ends[1][1] - ends[0][1]) / (heights[1] - heights[0])
    for (name, m), (x, y, count) in points.items():
        exact = moved(N, d, 2, m, names[name], causal)
        assert count == quantity(exact, "B")
        assert x == pytest.approx(x0 + (x1 - x0) * math.log(m / m0) / math.log(m1 / m0), abs=0.1)
        assert y == pytest.approx(ends[0][1] + slope * (math.log(exact) - heights[0]), abs=0.1)
        # A tile is a multiple of 16, at worst little more than half of the line's; never more.
        assert 1 - 1e-9 <= exact / smooth(N, d, 2, m, names[name], causal) < 2
        assert m < 200 or exact / smooth(N, d, 2, m, names[name], causal) < 1.3
    assert (float(ring.get("cx")), float(ring.get("cy"))) == points["FlashAttention-2", 96][:2]
    lines = [p.get("d") for p in root.iter(f"{SVG}path") if p.get("stroke") == "currentColor"]
    for line, order in zip(lines, names.values(), strict=True):
        drawn = [tuple(map(float, xy.split())) for xy in line[1:].split("L")]
        for (_, y), m in ((drawn[0], 32), (drawn[-1], 448)):
            want = math.log(smooth(N, d, 2, m, order, causal))
            assert y == pytest.approx(ends[0][1] + slope * (want - heights[0]), abs=0.1)


@pytest.mark.parametrize("tile", [1, 2, 3])
def test_a_row_shows_what_it_remembers_after_each_tile(tile):
    scores, values = (2.0, -1.0, 5.0, 3.0), (4.0, 8.0, -2.0, 1.0)
    root = parse(online_svg(scores, values, tile))
    steps = online(scores, values, tile)
    shown = words(root)
    for step in steps:
        for number in (step.rescale, step.total, step.output):
            assert f"{number:.3f}" in shown
    marked = [r for r in root.iter(f"{SVG}rect") if r.get("fill") == AT_WORK]
    moved = sum(step.rescale < 1 for step in steps)
    assert len(marked) == 3 * moved  # the score, the maximum and the factor
    weights = [math.exp(score) for score in scores]
    right = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert any(text.endswith(f" = {right:.3f}") for text in shown)


@pytest.mark.parametrize("orders", [("fa2",), ("fa2", "fa1")])
@pytest.mark.parametrize("causal", [False, True])
def test_a_tile_lies_in_memory_from_its_load_until_it_is_dropped(causal, orders):
    case = 10, 14, 3, 4
    root = parse(lifetimes_svg(*case, causal=causal, orders=orders))
    stays, streams, lives = 0, 0, 0
    for order in orders:
        path = plan.visits(*case, order, causal)
        rows = runs([r.start for r, _ in path])
        cols = runs([c.start for _, c in path])
        stays += 2 * len(rows) if order == "fa2" else len(cols)
        streams += len(cols) if order == "fa2" else 2 * len(rows)
        lives += len(path)
        assert len(rows if order == "fa2" else cols) == 4
    fills = [r.get("fill") for r in root.iter(f"{SVG}rect")]
    assert fills.count(AT_WORK) == stays + 1  # and the legend's
    assert fills.count("#CC79A7") == lives + 1
    assert fills.count("#9AD2F2") == streams + 1


def test_masks_are_drawn_as_they_are_counted():
    root = parse(masks_svg())
    fills = [r.get("fill") for r in root.iter(f"{SVG}rect")]
    flat = [kind for _, T, S, seen in PANELS for line in kinds(seen, T, S, TILE_Q, TILE_K)
            for kind in line]  # fmt: skip
    assert fills.count(FORWARD) == flat.count("all") + 1
    assert fills.count("#BBE1F6") == flat.count("some") + 1
    drawn = [boxes(p) for p in root.iter(f"{SVG}path") if p.get("fill-opacity") == ".35"]
    for number, (_, T, S, seen) in enumerate(PANELS):
        left = number % 2 * (PANEL + GAP)
        vain = {
            (i, j)
            for rows, line in zip(
                plan.cuts(T, TILE_Q), kinds(seen, T, S, TILE_Q, TILE_K), strict=True
            )
            for cols, kind in zip(plan.cuts(S, TILE_K), line, strict=True)
            for i, j in product(range(T)[rows], range(S)[cols])
            if kind != "none" and not seen(i, j)
        }
        top = drawn[number][0][1] - min(vain)[0] * CELL
        at = {((y - top) / CELL, (x - left) / CELL) for x, y, _, _ in drawn[number]}
        assert at == vain


def test_the_backward_shows_five_matmuls_and_what_each_takes():
    root = parse(backward_svg())
    assert len(MATMULS) == 5
    thick = [x for x in root.iter(f"{SVG}line") if x.get("stroke-width") == "2.25"]
    assert len(thick) == 2 * len(MATMULS) - 3  # three operands stand below their box
    assert sum(text.startswith("+= ") for text in words(root)) == len(SUMMED)
    assert {"S", "P", "dP", "dS"} == MADE.keys()


PICTURES = [
    lambda: tiles_svg(),
    lambda: tiles_svg(40, 30, 7, 9, "fa1", True, 3),
    lambda: orders_svg(),
    lambda: traffic_svg(1 << 16, 128, 2, 448, True),
    lambda: online_svg(),
    lambda: lifetimes_svg(),
    lambda: lifetimes_svg(orders=("fa1", "fa2")),
    lambda: masks_svg(),
    lambda: backward_svg(),
]


@pytest.mark.parametrize("draw", PICTURES)
def test_pictures_fit_say_what_they_show_and_are_the_same_each_time(draw):
    picture = draw()
    assert picture == draw()
    root = parse(picture)
    wide, high = map(float, root.get("viewBox").split()[2:])
    assert root[0].text and len(root[1].text) > 100
    least = int(re.search(r"min-width:(\d+)px", root.get("style"))[1])
    assert min(290, int(0.72 * wide)) <= least <= 430
    panels = {child: 258.0 for g in root.iter(f"{SVG}g") if "(258" in g.get("transform", "")
              for child in g.iter(f"{SVG}text")}  # fmt: skip
    groups = {mark: group for group in root.iter() for mark in group}
    for text in root.iter(f"{SVG}text"):
        anchor = text.get("text-anchor") or groups[text].get("text-anchor")
        reach = {"middle": 0.5, "end": 0.0}.get(anchor, 1.0)
        right = float(text.get("x")) + panels.get(text, 0) + reach * measure(text.text, 11)
        assert float(text.get("x")) >= 0 and right <= wide + 8
        assert 0 < float(text.get("y")) <= high


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tiles_svg(step=99), "step is 99, must be from 0 to 13, the visits there are"),
        (lambda: tiles_svg(order="naive"), "order is 'naive', must be one of fa1, fa2"),
        (lambda: tiles_svg(T=0), "T is 0, must be a whole number"),
        (lambda: orders_svg(warps=0), "warps is 0, must be a whole number"),
        (lambda: traffic_svg(sram=100), "sram is 100 KiB, must be one of 32, 48"),
        (lambda: traffic_svg(d=256), "d is 256, must be at most 128"),
    ],
)
def test_what_cannot_be_drawn_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- sliders --------------------------------------------------------------------------------------


def parts(html):
    """The picture and the line under it."""
    root = ElementTree.fromstring(f"<div>{html}</div>")
    (line,) = root.findall("p")
    return root.find(f"div/{SVG}svg"), line.text.replace("\u00a0", " ")


@pytest.mark.parametrize("mask", ["causal", "none"])
@pytest.mark.parametrize(("T", "S", "tile_q", "tile_k"), CASES)
def test_the_tile_slider_gives_the_counted_numbers(T, S, tile_q, tile_k, mask):
    picture, line = parts(explore.tiles(T=T, S=S, tile_q=tile_q, tile_k=tile_k, mask=mask))
    causal = mask == "causal"
    assert picture is not None
    assert line.startswith(f"{len(plan.visits(T, S, tile_q, tile_k, 'fa2', causal))} of ")
    assert f" {plan.scores_seen(T, S, tile_q, tile_k, causal)} scores are computed" in line
    for order in ("fa2", "naive"):
        count = sum(plan.traffic(T, S, 64, 64, 2, tile_q, tile_k, order, causal))
        assert quantity(count, "B") in line
    assert ("cut by the diagonal" in line) == causal


def test_the_step_slider_walks_to_the_end():
    path = plan.visits(10, 14, 3, 4, "fa1", causal=True)
    finished = []
    for step in range(1, 20):
        picture, line = parts(explore.walk(order="fa1", mask="causal", step=step))
        assert (
            picture is not None and f"Visit {min(step, len(path))} of {len(path)}: K and V" in line
        )
        finished.append(int(re.search(r"(\d) of 4 are finished", line)[1]))
    assert finished == sorted(finished) and finished[0] == 0 and finished[-1] == 4


@pytest.mark.parametrize("mask", ["causal", "none"])
def test_the_order_slider_counts_what_else_it_costs(mask):
    causal = mask == "causal"
    picture, line = parts(explore.orders(tile_q=64, tile_k=128, warps=8, mask=mask))
    assert picture is not None
    for order, split in (("fa1", "k"), ("fa2", "q")):
        work = operations(640, 896, 64, 64, 64, 128, order, causal)
        assert f"{quantity(work.exponentials + work.other, 'FLOP')} besides" in line
        passed = shared(640, 896, 64, 64, 2, 64, 128, 8, split, causal)
        assert f"read {quantity(passed.operands, 'B')} of tiles" in line
        assert f"exchange {quantity(passed.exchanged, 'B') if split == 'k' else 'nothing'}" in line


def test_the_memory_slider_sets_the_orders_side_by_side():
    picture, line = parts(explore.memory(N=8192, d=128, sram=228, mask="none"))
    flash, naive = (moved(8192, 128, 2, 228, order) for order in ("fa2", "naive"))
    assert picture is not None
    assert "tiles of {} queries and {} keys".format(*plan.tiles(228 * 1024, 128, 128, 2)) in line
    assert quantity(flash, "B") in line and quantity(naive, "B") in line
    assert f"{naive / flash:.4g} times as much" in line


def test_sliders_answer_to_what_does_not_exist():
    assert "mask is 'x', must be one of causal, none" in parts(explore.tiles(mask="x"))[1]
    assert "order is 'x', must be one of fa1, fa2" in parts(explore.walk(order="x"))[1]
    assert "step is 0, must be a whole number" in parts(explore.walk(step=0))[1]
    assert "d is 512, must be at most 128" in parts(explore.memory(d=512))[1]
    assert "warps is 0, must be a whole number" in parts(explore.orders(warps=0))[1]
