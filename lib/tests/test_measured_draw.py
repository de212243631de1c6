"""Curves and ladders: values keep their order, labels stay apart, and what is missing is seen."""

import re
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import SVG, apart, inside, parse, tips, told, words

from weft.draw.chart import spread
from weft.draw.measured.curves import LINE, Panel, panels
from weft.draw.measured.curves import svg as curves
from weft.draw.measured.ladder import BAR, Rung, wrapped
from weft.draw.measured.ladder import svg as ladder
from weft.plan.units import quantity

SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768)
NAMES = ("weft", "cudnn", "flash", "efficient", "math", "flex", "xformers", "weft, first", "a b c")
SHIFTS = ((-3.5, 0), (-3, -3), (0, -4), (0, -4.5), (0, 4))  # where a mark's outline begins
RATES = st.floats(1e9, 9e14)


@st.composite
def drawn(draw, unit="FLOP/s"):
    """A panel of up to nine lines, each with up to seven points."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=9, unique=True))
    sizes = st.lists(st.sampled_from(SIZES), min_size=1, unique=True)
    lines = {name: {s: draw(RATES) for s in sorted(draw(sizes))} for name in names}
    return Panel(draw(st.sampled_from(("", "causal"))), "T", unit, lines)


def spots(root, panel) -> dict[str, dict[float, tuple[float, float]]]:
    """Where the middle of each mark is: name -> size -> (x, y)."""
    found = {name: {} for name in panel.lines}
    for mark, tip in tips(root):
        name, size = re.fullmatch(rf"(.+), {panel.across} (\d+): .*", tip).groups()
        begin = map(float, re.match(r"M(-?[\d.]+) (-?[\d.]+)", mark.get("d")).groups())
        shift = SHIFTS[list(panel.lines).index(name) % len(SHIFTS)]
        found[name][float(size)] = tuple(a - b for a, b in zip(begin, shift, strict=True))
    return found


def labels(root) -> list:
    """What stands at the ends of lines."""
    some = root.findall(f"{SVG}text")
    return [text for text in some if text.get("font-size") and not text.get("text-anchor")]


@settings(max_examples=25)
@given(drawn(), st.booleans())
def test_every_point_is_there_and_higher_is_more(panel, roof):
    root = apart(inside(parse(curves(panel, {"matmul": 9.5e14} if roof else {}))))
    found = spots(root, panel)
    assert {n: set(line) for n, line in found.items()} == {
        n: set(v) for n, v in panel.lines.items()
    }
    placed = [(found[n][s][1], v) for n, line in panel.lines.items() for s, v in line.items()]
    heights = [y for y, _ in sorted(placed, key=lambda place: place[1])]
    assert all(lower >= higher - 0.02 for lower, higher in pairwise(heights))
    wide = {s: found[n][s][0] for n, line in panel.lines.items() for s in line}
    assert all(b > a + 5 for a, b in pairwise([wide[size] for size in sorted(wide)]))


@settings(max_examples=25)
@given(drawn())
def test_labels_are_in_the_order_of_what_they_end_with_and_do_not_overlap(panel):
    root = parse(curves(panel))
    rows = labels(root)
    for upper, lower in pairwise(rows):
        assert float(lower.get("y")) - float(upper.get("y")) >= LINE - 0.02
    said = " ".join(row.text for row in rows)
    ends = {name: line[max(line)] for name, line in panel.lines.items()}
    order = [said.index(f"{n} {quantity(v, panel.unit).split()[0]}") for n, v in ends.items()]
    by_value = [at for _, at in sorted(zip(ends.values(), order, strict=True), reverse=True)]
    assert by_value == sorted(by_value) or len(set(ends.values())) < len(ends)


@given(st.lists(st.tuples(st.floats(0, 200), st.sampled_from([16, 29])), min_size=1, max_size=7))
def test_labels_are_spread_within_bounds_and_keep_their_order(wanted):
    wishes, highs = zip(*sorted(wanted), strict=True)
    starts = spread(wishes, highs, 0, 210)
    assert all(b - a >= h - 1e-9 for (a, b), h in zip(pairwise(starts), highs, strict=False))
    assert starts[0] >= -1e-9 and starts[-1] + highs[-1] <= 210 + 1e-9
    if all(b - a >= 29 for a, b in pairwise(wishes)) and all(15 <= w <= 195 for w in wishes):
        assert starts == pytest.approx([w - h / 2 for w, h in zip(wishes, highs, strict=True)])


def test_a_missing_point_leaves_a_gap_and_an_early_end_is_told():
    lines = {"weft": {1: 2e9, 2: 3e9, 8: 4e9}, "torch": {1: 1e9, 2: 1e9, 4: 2e9, 8: 2e9},
             "math": {1: 5e8, 2: 4e8}}  # fmt: skip
    root = parse(curves(Panel("", "T", "FLOP/s", lines)))
    paths = [p.get("d") for p in root.iter(f"{SVG}path") if p.get("fill") == "none"]
    assert sorted((path.count("M"), path.count("L")) for path in paths) == [(1, 1), (1, 3), (2, 1)]
    assert "math 400 MFLOP/s at 2" in told(root) and "weft 4 GFLOP/s," in told(root)


def test_one_point_stands_in_the_middle():
    root = inside(parse(curves(Panel("", "T", "1", {"weft": {512: 0.5}}))))
    ((mark, tip),) = tips(root)
    assert tip == "weft, T 512: 0.5" and "A curve over T at 512." in told(root)
    assert words(root)[0] == "ratio"
    assert 100 < float(re.match(r"M([\d.]+)", mark.get("d"))[1]) < 300


def test_rates_begin_at_zero_and_times_are_by_powers():
    """Twice the rate is twice as high; four times the time is as far as the first four times."""
    rates = Panel("", "T", "B/s", {"weft": {1: 1e9, 2: 2e9, 4: 4e9}})
    times = Panel("", "T", "s", {"weft": {1: 1e-3, 4: 4e-3, 16: 16e-3}})
    for panel, even in ((rates, False), (times, True)):
        found = spots(parse(curves(panel)), panel)["weft"].values()
        (x0, y0), (x1, y1), (x2, y2) = found
        assert x2 - x1 == pytest.approx(x1 - x0, abs=0.05)
        assert (y1 - y2) == pytest.approx((y0 - y1) * (1 if even else 2), abs=0.05)


def test_ours_is_in_the_colour_of_the_text_and_on_top():
    lines = {name: {1: 1e9 + i, 2: 2e9 + i} for i, name in enumerate(NAMES)}
    root = parse(curves(Panel("", "T", "FLOP/s", lines)))
    paths = [p for p in root.iter(f"{SVG}path") if p.get("fill") == "none"]
    assert paths[-1].get("stroke") == "currentColor"
    assert all("var(--weft" in p.get("style") for p in paths[:-1])  # follows a dark page
    looks = {(p.get("stroke"), p.get("stroke-dasharray")) for p in paths}
    assert len(looks) == len(NAMES)


def test_a_limit_is_a_level_line_with_a_name():
    panel = Panel("causal", "T", "FLOP/s", {"weft": {512: 5e14}})
    root = inside(parse(curves(panel, {"matmul": 7e14})))
    (level,) = [e for e in root.iter(f"{SVG}line") if e.get("stroke-dasharray") == "8 4"]
    assert level.get("y1") == level.get("y2") and "matmul 700" in words(root)
    assert "A level line, matmul, is at 700 TFLOP/s." in told(root)
    assert words(root)[0] == "causal: TFLOP/s"


def result(name, who, unit, value):
    return SimpleNamespace(name=name, who=who, unit=unit, value=value)


def test_results_are_parted_into_panels_by_what_comes_before_their_size():
    results = [
        result(f"{kind}, T = {size}", who, "FLOP/s", size * 1.0)
        for kind in ("full", "G = 4") for size in (512, 64) for who in ("weft", "torch")
    ]  # fmt: skip
    results += [
        result("full, T = 512", "weft / torch", "1", 1.0),
        result("8 rows", "weft", "s", 1.0),
    ]
    record = SimpleNamespace(results=results)
    names = [r.name for r in results]
    full, grouped, rows = panels(record, names, ["weft", "torch", "weft / torch"])
    assert (full.name, full.across, full.unit) == ("full", "T", "FLOP/s")
    assert full.lines == {"weft": {512: 512, 64: 64}, "torch": {512: 512, 64: 64}}
    assert grouped.name == "G = 4" and (rows.across, rows.lines) == ("rows", {"weft": {8: 1}})
    assert list(panels(record, names, ["torch", "weft"])[0].lines) == ["torch", "weft"]
    (ratios,) = panels(record, ["full, T = 512"], ["weft / torch"])
    assert ratios.unit == "1"
    with pytest.raises(ValueError, match="result 'step' has no one size"):
        panels(SimpleNamespace(results=[result("step", "weft", "s", 1.0)]), ["step"], ["weft"])


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ({}, "lines is empty"),
        ({"weft": {}}, "lines is empty"),
        ({"weft": {512: float("nan")}}, "lines has nan, must be finite"),
        ({"weft": {512: 0.0}}, r"lines has 0\.0, must be finite and above 0"),
        ({"weft": {0: 1.0}}, "lines has size 0, must be finite and above 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(lines, complaint):
    with pytest.raises(ValueError, match=complaint):
        curves(Panel("", "T", "s", lines))


# --- ladders --------------------------------------------------------------------------------------

STEPS = [
    Rung("naive", 2e13, "every score goes through memory"),
    Rung("fa1", 1e14, "partial outputs are exchanged between the warps of a program " * 3),
    Rung("later", None, "nobody has run it"),
    Rung("fa2", 4e14),
]


def test_bars_are_as_long_as_what_they_stand_for():
    root = inside(parse(ladder(STEPS, "FLOP/s", "T = 512", {"matmul": 8e14})))
    bars = [float(rect.get("width")) for rect in root.iter(f"{SVG}rect")]
    assert bars == pytest.approx([bars[0], 5 * bars[0], 20 * bars[0]], abs=0.05)
    tops = [float(rect.get("y")) for rect in root.iter(f"{SVG}rect")]
    assert tops == sorted(tops) and all(b - a > BAR for a, b in pairwise(tops))
    strokes = {float(line.get("x1")) for line in root.iter(f"{SVG}line")}
    assert len(strokes) == 1 and max(strokes) == pytest.approx(2 * bars[-1], abs=0.05)


def test_a_step_says_what_it_gained_over_the_last_that_is_known():
    root = parse(ladder(STEPS, "FLOP/s"))
    said = words(root)
    assert "20 TFLOP/s" in said and "100 TFLOP/s, 5 times as much" in said
    assert "400 TFLOP/s, 4 times as much" in said and "not yet measured" in said
    assert "fa2 400 TFLOP/s." in told(root) and "(nobody has run it)" in told(root)


def test_reasons_are_wrapped_and_whole():
    assert " ".join(wrapped(STEPS[1].reason, 390, 11)) == STEPS[1].reason.strip()
    assert len(wrapped(STEPS[1].reason, 390, 11)) >= 3 and wrapped("", 390, 11) == []


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf")])
def test_a_bar_without_a_length_is_refused(value):
    with pytest.raises(ValueError, match=r"steps has .*, must be finite and above 0"):
        ladder([Rung("one", value)], "s")
    with pytest.raises(ValueError, match="steps is empty"):
        ladder([], "s")
