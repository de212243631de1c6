"""The pictures of the pipeline chapter: every mark is where the timeline says, for any timeline."""

import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell

from weft.draw import figure as svg
from weft.draw import pipeline as draw
from weft.draw.pipeline import _show_in_notebooks
from weft.draw.pipeline import bubble as draw_bubble
from weft.draw.pipeline import ledger as draw_ledger
from weft.draw.pipeline.steps import two_steps
from weft.explore import pipeline as explore
from weft.plan.comm import lower
from weft.plan.pipeline import bubble
from weft.plan.pipeline.schedules import SCHEDULES, gpipe, interleaved, one_f_one_b, zb_h1, zb_v
from weft.plan.pipeline.waits import ledger, live
from weft.plan.simulate.engine import Deadlock, simulate
from weft.plan.simulate.timeline import Timeline

SVG = "{http://www.w3.org/2000/svg}"
SIZES = [(1, 1), (1, 3), (2, 4), (3, 6), (4, 8), (5, 10)]
CASES = [(name, p, m) for name in SCHEDULES for p, m in SIZES if name != "dualpipe_v" or m >= 2 * p]
DEAR = {"f": 1.3, "b": 1.75, "w": 0.6, "c": 0.2}  # nothing is a whole number, nor equal
PATIENT = {"suppress_health_check": [HealthCheck.too_slow]}  # whoever else uses the machine
HUES = {"F": "56B4E9", "B": "E69F00", "W": "009E73"}


def parse(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def tipped(root: ElementTree.Element) -> list[tuple[str, tuple[float, float, float, float]]]:
    """The boxes that say what they are: (what, (x, y, width, height))."""
    return [
        (rect[0].text, tuple(float(rect.get(side)) for side in ("x", "y", "width", "height")))
        for rect in root.iter(f"{SVG}rect")
        if len(rect)
    ]


def boxes(root: ElementTree.Element) -> list[tuple[str, float, float, float, float]]:
    """The boxes of all coloured paths: (colour, x, y, width, height)."""
    box = re.compile(r"M(\S+) ([\d.]+)h([\d.]+)v([\d.]+)h")
    return [
        (path.get("fill"), *map(float, numbers))
        for path in root.iter(f"{SVG}path")
        if path.get("style")
        for numbers in box.findall(path.get("d"))
    ]


def words(root: ElementTree.Element) -> list[tuple[str, float, float]]:
    """All text as (text, x, y), a text with an x for each letter taken apart."""
    found = []
    for text in root.iter(f"{SVG}text"):
        xs, y = text.get("x").split(), float(text.get("y"))
        pieces = text.text if len(xs) > 1 else [text.text]
        found += [(piece, float(x), y) for piece, x in zip(pieces, xs, strict=True)]
    return found


def clock(root: ElementTree.Element, makespan: float):
    """From time to x, by what the axis says: between its 0 and the label in bold."""
    labels = list(root.iter(f"{SVG}text"))
    y = next(text for text in labels if text.text == "time").get("y")
    labels = [text for text in labels if text.get("y") == y]
    start = float(next(text for text in labels if text.text == "0").get("x"))
    stop = float(next(text for text in labels if text.get("font-weight")).get("x"))
    return lambda time: start + (stop - start) * time / makespan


def row_of(root: ElementTree.Element, y: float, height: float) -> int:
    """The rank whose label stands beside a box: nearer to its middle than any other's."""
    labels = [(text, at) for text, _, at in words(root) if re.fullmatch(r"rank \d+", text)]
    nearest, _ = min(labels, key=lambda label: abs(label[1] - 4 - (y + height / 2)))
    return int(nearest.split()[1])


def timelines():
    """Any schedule at any small size and any durations."""

    @st.composite
    def build(sample):
        name = sample(st.sampled_from(sorted(SCHEDULES)))
        p, m = sample(st.integers(1, 4)), sample(st.integers(1, 7))
        m = {"interleaved": m * p, "dualpipe_v": m + 2 * p - 1}.get(name, m)
        some = st.one_of(st.integers(0, 3), st.floats(0, 1e3, allow_subnormal=False))
        durations = {key: sample(some) for key in "fbwc"}
        return simulate(SCHEDULES[name](p, m), **durations)

    return build()


# --- the grid ------------------------------------------------------------------------------------


@pytest.mark.parametrize("durations", [{}, DEAR], ids=["equal", "dear"])
@pytest.mark.parametrize(("name", "p", "m"), CASES)
def test_every_action_is_drawn_once_where_and_when_it_runs(name, p, m, durations):
    timeline = simulate(SCHEDULES[name](p, m), **durations)
    root = parse(draw.svg(timeline))
    x = clock(root, timeline.makespan)
    drawn = defaultdict(list)
    for tip, (left, y, wide, high) in tipped(root):
        drawn[tip.split(",")[0], row_of(root, y, high)].append((left, left + wide))
    for span in timeline.spans:
        stage = f" of stage {span.action.stage}" if timeline.plan.v > 1 else ""
        places = drawn.pop((f"{span.action}{stage}", span.rank))
        assert places == [pytest.approx((x(span.start), x(span.end)), abs=0.03)]
    assert not drawn


@pytest.mark.parametrize(("name", "p", "m"), CASES)
def test_cells_have_the_colour_of_their_kind_and_bw_is_b_then_w(name, p, m):
    timeline = simulate(SCHEDULES[name](p, m), **DEAR)
    picture = draw.svg(timeline, b_share=0.75)
    root = parse(picture)
    x = clock(root, timeline.makespan)
    kinds = {}
    for hue, left, y, wide, high in boxes(root):
        kind = next(kind for kind, full in HUES.items() if full in _hue_and_tints(full, hue))
        kinds[row_of(root, y, high), round(left, 1)] = kind, wide
    for rank, action, start, end in timeline.spans:
        parts = {"BW": [("B", 0, 0.75), ("W", 0.75, 1)]}.get(action.kind, [(action.kind, 0, 1)])
        for kind, low, high in parts:
            left, right = (x(start + share * (end - start)) for share in (low, high))
            near = [v for (r, at), v in kinds.items() if r == rank and abs(at - left) < 0.1]
            assert near == [(kind, pytest.approx(right - left, abs=0.03))]


def _hue_and_tints(full: str, shown: str) -> list[str]:
    """[full] if `shown` is that colour or that colour mixed with white, else nothing."""
    of, to = ([int(c[i : i + 2], 16) for i in (0, 2, 4)] for c in (full, shown.lstrip("#")))
    whites = [(t - o) / (255 - o) for o, t in zip(of, to, strict=True)]
    return [full] if max(whites) - min(whites) < 0.05 and min(whites) >= 0 else []


def test_stages_of_one_rank_have_their_own_lightness():
    root = parse(draw.svg(simulate(interleaved(p=2, m=4, v=3))))
    hues = Counter(hue for hue, *_ in boxes(root))
    assert len(hues) == 9
    assert set(hues.values()) == {2 * 4}


@pytest.mark.parametrize(("name", "p", "m"), CASES)
def test_a_number_stands_in_the_middle_of_its_cell(name, p, m):
    timeline = simulate(SCHEDULES[name](p, m))
    root = parse(draw.svg(timeline, width=3000))
    x = clock(root, timeline.makespan)
    ys = {y for text, _, y in words(root) if text.startswith("rank")}
    shown = [(text, round(at, 1), y) for text, at, y in words(root) if text.isdigit() and y in ys]
    middle = {"BW": 0.25}  # of its B part: the edge between B and W is in the middle of the cell
    expected = Counter(
        (str(a.microbatch), round(x(start + middle.get(a.kind, 0.5) * (end - start))))
        for _, a, start, end in timeline.spans
    )
    assert Counter((text, round(at)) for text, at, _ in shown) == expected


@pytest.mark.parametrize(
    ("m", "b_share", "at"),
    [(3, 0.75, 0.375), (3, 0.25, 0.625), (3, 1, 0.5), (3, 0, 0.5), (3, 0.125, 0.5625)]
    + [(6, 0.5, 0.5), (6, 0.75, 0.375)],  # neither of two halves has room, three quarters have
)
def test_a_number_does_not_stand_on_the_edge_between_two_colours(m, b_share, at):
    timeline = simulate(one_f_one_b(p=1, m=m), f=4)
    root = parse(draw.svg(timeline, b_share=b_share, width=360))
    x = clock(root, timeline.makespan)
    y = next(y for text, _, y in words(root) if text == "rank 0")
    shown = {text: [at for t, at, its in words(root) if (t, its) == (text, y)] for text in "012"}
    for i in range(3):
        f, bw = x(6 * i + 2), x(6 * i + 4 + 2 * at)
        assert shown[str(i)] == [pytest.approx(f, abs=0.02), pytest.approx(bw, abs=0.02)]


def test_numbers_are_left_out_where_one_of_them_would_not_fit():
    root = parse(draw.svg(simulate(one_f_one_b(p=8, m=32))))
    ys = {y for text, _, y in words(root) if text.startswith("rank")}
    assert not [text for text, _, y in words(root) if text.isdigit() and y in ys]


def test_blocked_messages_are_drawn_where_they_block():
    timeline = simulate(gpipe(p=3, m=5), c=0.5, sends="rendezvous")
    root = parse(draw.svg(timeline))
    x = clock(root, timeline.makespan)
    drawn = {
        (tip.split(",")[0], row_of(root, y, high)): (left, left + wide)
        for tip, (left, y, wide, high) in tipped(root)
        if re.match(r"[SR]", tip)
    }
    expected = {
        (str(s.action), s.rank): pytest.approx((x(s.start), x(s.end)), abs=0.03)
        for s in timeline.spans
        if not s.computes and s.end > s.start
    }
    assert drawn == expected
    assert "blocked in a message" in [text for text, *_ in words(root)]


def test_split_backwards_say_how_wide_the_parts_of_a_whole_one_are():
    whole_and_split = simulate(SCHEDULES["dualpipe_v"](2, 5), f=1, b=3, w=1)
    assert draw.svg(whole_and_split) == draw.svg(whole_and_split, b_share=0.75)
    assert draw.svg(whole_and_split) != draw.svg(whole_and_split, b_share=0.5)


def test_a_shared_axis_gives_every_schedule_the_same_scale():
    fast, slow = simulate(zb_h1(p=3, m=5)), simulate(one_f_one_b(p=3, m=5))
    roots = [parse(draw.svg(each, until=30.0)) for each in (fast, slow)]
    assert roots[0].get("viewBox") == roots[1].get("viewBox")
    first = [clock(root, t.makespan)(1.0) for root, t in zip(roots, (fast, slow), strict=True)]
    assert first[0] == pytest.approx(first[1])


@pytest.mark.parametrize(("name", "p", "m"), CASES)
def test_without_tips_every_cell_still_has_its_one_outline(name, p, m):
    timeline = simulate(SCHEDULES[name](p, m), f=2, b=2, w=2)
    root = parse(draw.svg(timeline, tips=False))
    x = clock(root, timeline.makespan)
    outlined = "".join(e.get("d") for e in root.iter(f"{SVG}path") if e.get("stroke") == svg.INK)
    drawn = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)", outlined)
    cells = Counter(
        (row_of(root, float(y), float(high)), round(float(at)), round(float(w)))
        for at, y, w, high in drawn
    )
    assert cells == Counter(
        (s.rank, round(x(s.start)), round(x(s.end) - x(s.start))) for s in timeline.spans
    )
    assert not tipped(root)


def test_small_pictures_are_small_and_large_ones_are_bounded():
    assert len(draw.svg(simulate(one_f_one_b(p=4, m=8)))) < 15_000
    assert len(draw.svg(simulate(zb_h1(p=4, m=8)))) < 15_000
    assert len(draw.svg(simulate(one_f_one_b(p=8, m=8000)))) < 300_000


def test_a_crowded_grid_still_shows_when_ranks_are_idle():
    timeline = simulate(gpipe(p=3, m=3000))
    root = parse(draw.svg(timeline))
    x = clock(root, timeline.makespan)
    ends = defaultdict(list)
    for _, left, y, wide, high in boxes(root):
        ends[row_of(root, y, high)] += [left, left + wide]
    for rank, row in enumerate(timeline.rows):
        assert min(ends[rank]) == pytest.approx(x(row[0].start), abs=1)
        assert max(ends[rank]) == pytest.approx(x(row[-1].end), abs=1)


# --- what all pictures have in common ------------------------------------------------------------


def pictures(timeline: Timeline) -> dict[str, str]:
    """Every picture there is of a timeline."""
    return {
        "svg": draw.svg(timeline),
        "plain": draw.svg(timeline, tips=False),
        "seconds": draw.svg(timeline, unit="s"),
        "ledger": draw.ledger_svg(timeline),
        "live": draw.live_svg(timeline, limit=2.5),
        "compare": draw.compare_svg([timeline, timeline], ["above", "below"]),
        "measured": draw.measured_svg(timeline, timeline),
    }


@given(timelines())
@settings(max_examples=60, **PATIENT)
def test_every_picture_of_any_timeline_is_well_formed_and_inside_its_frame(timeline):
    for name, picture in pictures(timeline).items():
        root = parse(picture)
        _, _, width, height = map(float, root.get("viewBox").split())
        for element in root.iter():
            left, wide = float(element.get("width", 0)), 0.0
            if element.tag == f"{SVG}rect":
                left, wide = float(element.get("x")), float(element.get("width"))
                assert 0 <= float(element.get("y")) <= height - float(element.get("height")), name
                assert wide >= 0 and 0 <= left <= left + wide <= width + 0.01, name
        for text, x, y in words(root):
            assert 0 <= x <= width and 0 < y < height, (name, text)
        assert "nan" not in picture and "inf" not in picture


@given(timelines())
@settings(max_examples=20, **PATIENT)
def test_every_picture_says_in_words_what_it_shows(timeline):
    for name, picture in pictures(timeline).items():
        root = parse(picture)
        title, description = root[0], root[1]
        assert root.get("role") == "img"
        assert root.get("aria-labelledby").split() == [title.get("id"), description.get("id")]
        assert title.text and "{" not in title.text
        for rank in range(timeline.plan.p):
            assert f"Rank {rank} " in description.text or f"Rank {rank}:" in description.text, name


def test_ids_differ_where_pictures_differ_and_only_there():
    different = [
        picture
        for name, p, m in CASES
        for picture in pictures(simulate(SCHEDULES[name](p, m), **DEAR)).values()
    ]
    ids = Counter(id_ for each in set(different) for id_ in re.findall(r"\bid='([^']+)'", each))
    assert set(ids.values()) == {1}
    again = pictures(simulate(one_f_one_b(p=3, m=6), **DEAR))
    assert again == pictures(simulate(one_f_one_b(p=3, m=6), **DEAR))


def test_pictures_do_not_depend_on_the_order_of_a_hash_table():
    code = (
        "from weft.draw import pipeline as draw\n"
        "from weft.explore import pipeline as explore\n"
        "from weft.plan.pipeline import zb_v\n"
        "from weft.plan.simulate import simulate\n"
        "t = simulate(zb_v(3, 7), w=0.4, c=0.1)\n"
        "print(draw.text(t, color=True), draw.svg(t), draw.ledger_svg(t), draw.live_svg(t))\n"
        "print(explore.durations(), explore.bubble(v=2))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_rank_that_does_nothing_and_a_step_without_length():
    empty = Timeline(one_f_one_b(p=2, m=1), ())
    assert "Rank 1 does nothing" in draw.svg(empty)
    assert draw.text(empty).splitlines()[1:3] == ["rank 0", "rank 1"]
    still = simulate(one_f_one_b(p=2, m=3), f=0, b=0, w=0)
    assert "makespan 0, idle 0.0 %" in draw.text(still)
    for timeline in (empty, still):
        for picture in pictures(timeline).values():
            parse(picture)


def test_marks_escape_what_xml_would_read_as_its_own():
    figure = svg.Figure(10, 10, "a < b & c", "'quoted'")
    figure.words(1, 1, "<b>&", tip="1 < 2", id="it's")
    root = parse(str(figure))
    assert (root[0].text, root[1].text) == ("a < b & c", "'quoted'")
    assert (root[2][0].text, root[2][0].tail, root[2].get("id")) == ("1 < 2", "<b>&", "it's")


@settings(**PATIENT)
@given(st.floats(1e-9, 1e9), st.floats(0, 1), st.integers(1, 20))
def test_ticks_are_round_few_and_inside(high, share, most):
    low = high * share * 0.99
    ticks = svg.Scale(low, high, 0, 1).ticks(most)
    assert len(ticks) <= most + 1
    assert all(low * (1 - 1e-9) <= tick <= high * (1 + 1e-9) for tick in ticks)
    for before, after in pairwise(ticks):
        step = f"{after - before:.2e}"
        assert step.startswith(("1.00", "2.00", "5.00")) or high - low < 1e-6 * high


def test_a_notebook_shows_a_timeline_as_its_grid():
    program = (
        "from weft.draw.pipeline import svg\n"
        "from weft.plan.pipeline import one_f_one_b\n"
        "from weft.plan.simulate import simulate\n"
        "timeline = simulate(one_f_one_b(p=3, m=4))\n"
        "shown, _ = get_ipython().display_formatter.format(timeline)\n"
        "assert shown['text/html'] == svg(timeline)"
    )
    shell = InteractiveShell.instance()
    try:
        _show_in_notebooks()
        shell.run_cell(program).raise_error()
    finally:
        InteractiveShell.clear_instance()


# --- characters ----------------------------------------------------------------------------------


def grid_of(picture: str, p: int) -> tuple[list[str], int]:
    """The rows of a text grid without their labels, filled up, and how many columns it has."""
    axis, *rest = picture.splitlines()
    columns = axis.rindex(" ") + 1 - 9 if axis.split()[-1] != "0" else 0
    return [row[9:].ljust(columns) for row in rest[:p]], columns


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize(("name", "p", "m"), CASES)
def test_a_column_shows_what_its_rank_does_in_the_middle_of_its_time(name, p, m, width):
    for durations in ({}, DEAR, {"w": 0.5}):
        timeline = simulate(SCHEDULES[name](p, m), **durations)
        rows, columns = grid_of(draw.text(timeline, width=width), p)
        assert max(map(len, rows)) == columns <= width - 9
        for row, spans in zip(rows, timeline.rows, strict=True):
            for column, letter in enumerate(row):
                middle = (column + 0.5) * timeline.makespan / columns
                at_work = any(s.start + 1e-6 < middle < s.end - 1e-6 for s in spans)
                on_edge = any(abs(middle - t) < 1e-6 for s in spans for t in s[2:])
                assert on_edge or at_work == (letter != "."), (row, column)


@pytest.mark.parametrize(("name", "p", "m"), [case for case in CASES if case[1] < 5])
def test_whole_durations_stand_on_whole_columns_with_their_names(name, p, m):
    for durations in ({}, {"f": 2, "b": 1, "w": 2}, {"c": 1}):
        timeline = simulate(SCHEDULES[name](p, m), **durations)
        rows, columns = grid_of(draw.text(timeline, width=400), p)
        each = int(columns / timeline.makespan)
        assert each == columns / timeline.makespan
        for row, spans in zip(rows, timeline.rows, strict=True):
            rest = list(row)
            for span in spans:
                start, end = int(span.start * each), int(span.end * each)
                name_shown = "".join(rest[start:end]).upper().rstrip()
                assert name_shown == str(span.action) or len(str(span.action)) > end - start
                rest[start:end] = "." * (end - start)
            assert set(rest) <= {"."}


def test_every_second_stage_of_a_rank_is_in_lower_case():
    timeline = simulate(zb_v(p=2, m=3))
    rows, columns = grid_of(draw.text(timeline), 2)
    for row, spans in zip(rows, timeline.rows, strict=True):
        for span in spans:
            first = row[round(span.start * columns / timeline.makespan)]
            lower_stage = span.action.stage == min(timeline.plan.stages_of(span.rank))
            assert first.isupper() == lower_stage


def test_a_name_that_does_not_fit_is_never_cut_into_another_name():
    timeline = simulate(zb_h1(p=2, m=12))
    picture = draw.text(timeline, width=100)
    rows, _ = grid_of(picture, 2)
    for row in rows:
        assert sorted(re.findall(r"F\d+", row)) == [f"F{i}" for i in range(10)]
        assert row.count("F") == row.count("W") == 12
    assert "a character is 0.5 of time" in picture


def test_colour_adds_codes_and_changes_no_letter():
    timeline = simulate(SCHEDULES["dualpipe_v"](2, 5), c=0.5)
    colored = draw.text(timeline, color=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == re.sub(r"(?<=\S) +$", "", draw.text(timeline))
    columns = Counter()
    for code, letters in re.findall(r"48;5;(\d+)m([^\x1b]*)\x1b\[0m", colored):
        assert "." not in letters
        columns[code] += len(letters)
    each = sum(columns.values()) / sum(timeline.busy)
    for stage_of_rank, codes in enumerate([("74", "214", "36"), ("153", "223", "115")]):
        for kinds, code in zip([("F",), ("B", "BW"), ("W", "BW")], codes, strict=True):
            here = [s for s in timeline.spans if s.action.kind in kinds]
            chunk = [timeline.plan.stages_of(s.rank).index(s.action.stage) for s in here]
            assert columns[code] == each * chunk.count(stage_of_rank)


def test_blocked_ranks_are_told_from_idle_ones():
    rows, _ = grid_of(draw.text(simulate(gpipe(p=2, m=3), c=1, sends="rendezvous")), 2)
    assert rows[1].startswith("~") and rows[1].endswith(".")


@pytest.mark.parametrize("width", [0, 28])
def test_too_narrow_a_terminal_is_refused(width):
    with pytest.raises(ValueError, match=f"width is {width}, must be at least 29"):
        draw.text(simulate(gpipe(p=2, m=2)), width=width)


# --- the ledger, memory, the bubble --------------------------------------------------------------


@given(timelines())
@settings(max_examples=40, **PATIENT)
def test_the_ledger_accounts_for_the_whole_step_of_every_rank(timeline):
    waits = defaultdict(float)
    for wait in ledger(timeline):
        waits[wait.rank, wait.cause, wait.source] += wait.end - wait.start
    for rank, parts in enumerate(draw_ledger.totals(timeline)):
        assert sum(parts.values()) == pytest.approx(timeline.makespan)
        work = sum(length for (kind, _), length in parts.items() if kind in "FBW")
        assert work == pytest.approx(timeline.busy[rank])
        for (kind, source), length in parts.items():
            if kind == "dependency":
                assert length == pytest.approx(waits[rank, kind, source])


def test_the_bars_of_the_ledger_are_as_long_as_what_they_stand_for():
    timeline = simulate(interleaved(p=3, m=6, v=2), **DEAR)
    root = parse(draw.ledger_svg(timeline))
    x = clock(root, timeline.makespan)
    bars = defaultdict(list)
    for tip, (left, y, wide, high) in tipped(root):
        bars[row_of(root, y, high)].append((tip, left, left + wide))
    for rank, parts in enumerate(draw_ledger.totals(timeline)):
        now = 0.0
        for (_, left, right), (key, length) in zip(bars[rank], parts.items(), strict=True):
            assert (left, right) == pytest.approx((x(now), x(now + length)), abs=0.03), key
            now += length
        sources = {tip.split(":")[0] for tip, *_ in bars[rank] if "for rank" in tip}
        assert sources == {f"waiting for rank {s}" for k, s in parts if k == "dependency"}


@pytest.mark.parametrize(("name", "p", "m"), CASES)
def test_memory_curves_step_where_activations_come_and_go(name, p, m):
    timeline = simulate(SCHEDULES[name](p, m), **DEAR)
    root = parse(draw.live_svg(timeline))
    x = clock(root, timeline.makespan)
    curves = [e for e in root.iter(f"{SVG}path") if e.get("style")]
    assert len(curves) == p
    highest = max(timeline.peak_live)
    for curve, steps, peak in zip(curves, live(timeline), timeline.peak_live, strict=True):
        base = float(re.match(r"M\S+ (\S+?)H", curve.get("d")).group(1))
        path = re.findall(r"H([\d.]+)V([\d.]+)", curve.get("d"))[: len(steps)]
        heights = [base - float(y) for _, y in path]
        for (time, count), (at, _), height in zip(steps, path, heights, strict=True):
            assert float(at) == pytest.approx(x(time), abs=0.02)
            assert height == pytest.approx(44 * count / highest, abs=0.02)
        assert max(heights) == pytest.approx(44 * peak / highest, abs=0.02)


def test_memory_axes_reach_as_far_as_asked_and_the_limit_is_on_them():
    timeline = simulate(one_f_one_b(p=3, m=4))
    root = parse(draw.live_svg(timeline, limit=2, most=6, until=40))
    curve = next(e for e in root.iter(f"{SVG}path") if e.get("style"))
    base, *_, peak = sorted({float(y) for y in re.findall(r"V([\d.]+)", curve.get("d"))})[::-1]
    limit = next(e for e in root.iter(f"{SVG}line") if e.get("stroke-dasharray"))
    assert base - peak == pytest.approx(44 * 3 / 6, abs=0.02)
    assert base - float(limit.get("y1")) == pytest.approx(44 * 2 / 6, abs=0.02)
    assert "the limit of 2" in root[1].text
    assert "30" in [text for text, *_ in words(root)]


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 1), (3, 9, 2), (8, 24, 3), (5, 7, 1), (2, 96, 4)])
def test_simulated_points_lie_on_the_curves_and_the_choice_is_ringed(p, m, v):
    root = parse(draw.bubble_svg(p, m, v))
    texts = words(root)
    percents = {float(text[:-2]): y - 4 for text, _, y in texts if re.fullmatch(r"[\d.]+ %", text)}
    counts = {int(text): x for text, x, _ in texts if text.isdigit()}

    def on_axis(value, labels):
        low, high = min(labels), max(labels)
        share = math.log(value / low) / math.log(high / low)
        return pytest.approx(labels[low] + share * (labels[high] - labels[low]), abs=0.1)

    *circles, ring = list(root.iter(f"{SVG}circle"))
    places = {}
    for circle in circles:
        if len(circle):
            n, each = map(int, re.match(r"m = (\d+), v = (\d+)", circle[0].text).groups())
            places[n, each] = float(circle.get("cx")), float(circle.get("cy"))
    most = max(64, m)
    curves = {1, 2, 4, v}
    assert set(places) == {(n, each) for each in curves for n in draw_bubble.points(p, each, most)}
    places[m, v] = float(ring.get("cx")), float(ring.get("cy"))
    for (n, each), place in places.items():
        share = 100 * bubble.fraction(p, n, each)
        assert place == (on_axis(n, counts), on_axis(share, percents))
    lines = [e.get("d") for e in root.iter(f"{SVG}path") if e.get("stroke") == "currentColor"]
    assert len(lines) == len(curves)
    for line, each in zip(lines, sorted(curves), strict=True):
        first, last = (
            map(float, point.split()) for point in (line[1:].split("L")[i] for i in (0, -1))
        )
        for place, n in ((first, 1 if each == 1 else p), (last, most)):
            share = 100 * bubble.fraction(p, n, each)
            assert tuple(place) == (on_axis(n, counts), on_axis(share, percents))


def test_one_rank_alone_has_no_bubble_to_draw():
    with pytest.raises(ValueError, match="p is 1, must be at least 2"):
        draw.bubble_svg(p=1)
    assert "one rank alone never waits" in explore.bubble(p=1)


# --- side by side --------------------------------------------------------------------------------


def test_compared_schedules_share_their_scale_and_start():
    plans = gpipe(2, 4), one_f_one_b(3, 5), zb_h1(3, 5)  # the longest is not the first
    several = [simulate(plan, f=2, b=3, w=2) for plan in plans]
    root = parse(draw.compare_svg(several))
    x = clock(root, max(t.makespan for t in several))
    drawn = Counter((tip, round(left), round(wide)) for tip, (left, _, wide, _) in tipped(root))
    width = float(root.get("viewBox").split()[2])
    assert max(left + wide for _, (left, _, wide, _) in tipped(root)) < width
    expected = Counter(
        (f"{s.action}, {s.start:g} to {s.end:g}", round(x(s.start)), round(x(s.end) - x(s.start)))
        for timeline in several
        for s in timeline.spans
    )
    assert drawn == expected
    results = [text for text, *_ in words(root) if text.startswith("makespan")]
    assert results == [f"makespan {t.makespan:g}, idle {100 * t.bubble:.1f} %" for t in several]


def test_comparing_needs_timelines_and_a_label_for_each():
    timeline = simulate(gpipe(2, 2))
    with pytest.raises(ValueError, match="timelines is empty"):
        draw.compare_svg([])
    with pytest.raises(ValueError, match="labels has 1 entries, must have 2"):
        draw.compare_svg([timeline, timeline], ["one"])


def test_a_measured_step_is_set_against_the_simulation_of_its_own_plan():
    simulated = simulate(one_f_one_b(p=2, m=3), f=0.01, b=0.01, w=0.01)
    late = tuple(s._replace(start=s.start * 1.1, end=s.end * 1.1) for s in simulated.spans)
    root = parse(draw.measured_svg(simulated, replace(simulated, spans=late)))
    assert "measured (+10.0 %)" in [text for text, *_ in words(root)]
    assert "132 ms" in [text for text, *_ in words(root)]
    with pytest.raises(ValueError, match="must be of the simulated plan, 1F1B, p = 2, m = 3"):
        draw.measured_svg(simulated, simulate(one_f_one_b(p=2, m=4)))


# --- the deadlock --------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "m"), [(2, 2), (2, 5), (3, 4), (4, 9)])
def test_each_blocked_rank_has_its_action_marked_and_an_arrow(p, m):
    plan = lower(one_f_one_b(p, m), fuse=False)
    with pytest.raises(Deadlock) as caught:
        simulate(plan, sends="rendezvous")
    root = parse(draw.deadlock_svg(one_f_one_b(p, m)))
    spoken = {
        f"{verb} {action.kind[-1]}{action.microbatch}"
        for _, action in caught.value.blocked
        for verb in ["send" if action.kind.startswith("SEND") else "receive"]
    }
    marked = {t.text for t in root.iter(f"{SVG}text") if t.get("font-weight") == "bold"}
    assert marked == spoken
    arrows = [e for e in root.iter(f"{SVG}path") if "C" in e.get("d")]
    assert len(arrows) == len(caught.value.blocked) == p
    for rank, _ in caught.value.blocked:
        assert f"Rank {rank} is stuck at its step" in root[1].text


def test_arrows_lead_from_the_blocked_message_to_its_other_end():
    root = parse(draw.deadlock_svg(one_f_one_b(p=2, m=3)))
    place = {}
    for text, x, y in words(root):
        place[text, y] = x
    rows = sorted(y for text, _, y in words(root) if text.startswith("rank"))
    first, second = (y - 1 for y in rows)
    ends = set()
    for path in root.iter(f"{SVG}path"):
        if "C" in path.get("d"):
            numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d"))]
            ends.add((numbers[0], numbers[-2]))
    assert ends == {
        (place["send F1", first], place["receive F1", second]),
        (place["send B0", second], place["receive B0", first]),
    }


def test_a_deadlock_between_stages_of_the_same_ranks_names_the_stages():
    root = parse(draw.deadlock_svg(interleaved(p=2, m=4, v=2)))
    marked = {t.text for t in root.iter(f"{SVG}text") if t.get("font-weight") == "bold"}
    assert marked == {"send F1 s0", "send F0 s1"}
    assert "rank 1 to receive F1 s1" in root[1].text
    assert "rank 0 to receive F0 s2" in root[1].text


@pytest.mark.parametrize("plan", [gpipe(3, 4), lower(one_f_one_b(3, 4))])
def test_a_plan_that_runs_through_has_no_deadlock_to_draw(plan):
    with pytest.raises(ValueError, match="runs through, nothing is blocked"):
        draw.deadlock_svg(plan)


# --- sliders -------------------------------------------------------------------------------------


def parts(html: str) -> tuple[ElementTree.Element | None, str]:
    """The picture and the line under it."""
    root = ElementTree.fromstring(f"<div>{html}</div>")
    picture = root.find(f"div/{SVG}svg")
    (line,) = root.findall("p")
    return picture, line.text.replace("\u00a0", " ")


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("m", [1, 4, 8, 12])
def test_sliders_show_the_tested_numbers_or_say_why_not(name, p, m):
    allowed = not (name == "interleaved" and m % p) and not (name == "dualpipe_v" and m < 2 * p)
    for function in (explore.schedule, explore.memory, explore.durations):
        picture, line = parts(function(schedule=name, p=p, m=m))
        assert (picture is not None) == allowed
        if not allowed:
            assert "multiple of p" in line or "at least 2 p" in line
            continue
        plan = SCHEDULES[name](p, m)
        timeline = simulate(plan, f=1 / plan.v, b=1 / plan.v, w=1 / plan.v)
        assert f"akespan {timeline.makespan:.4g}" in line
        assert f"idle {100 * timeline.bubble:.1f} %" in line


@pytest.mark.parametrize("choice", ["schedule", "memory"])
def test_moving_the_schedule_slider_keeps_the_axes(choice):
    frames = [parts(getattr(explore, choice)(schedule=name, p=3, m=6))[0] for name in SCHEDULES]
    assert len({frame.get("viewBox") for frame in frames}) == 1
    lines = set()
    for frame in frames:
        labels = words(frame)
        y = next(at for text, _, at in labels if text == "time")
        lines |= {(text, x) for text, x, at in labels if at == y and text in ("0", "5", "10")}
    assert len(lines) == 3


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 1), (4, 8, 2), (3, 9, 4), (5, 7, 1)])
def test_the_bubble_slider_names_both_definitions(p, m, v):
    picture, line = parts(explore.bubble(p=p, m=m, v=v))
    assert picture is not None
    assert line.count(f"{100 * (p - 1) / (v * m + p - 1):.1f} %") == 2
    assert f"{100 * (p - 1) / (v * m):.1f} %" in line
    assert "try m = 4" in explore.bubble(p=4, m=7, v=2)  # down: up may lie beyond the slider


def test_the_duration_slider_takes_its_shares_in_percent():
    _, line = parts(explore.durations(schedule="zb_h1", p=4, m=8, w_percent=50, hop_percent=25))
    timeline = simulate(zb_h1(4, 8), w=0.5, c=0.25)
    base = simulate(one_f_one_b(4, 8), w=0.5, c=0.25)
    assert f"makespan {timeline.makespan:.4g}" in line
    assert f"1F1B is idle {100 * base.bubble:.1f} %" in line
    assert f"{100 * timeline.bubble_rate:.1f} % by each rank's own clock" in line


def test_sliders_answer_to_what_does_not_exist():
    assert parts(explore.schedule(schedule="nope"))[1].startswith(
        "There is no picture: schedule is"
    )
    assert "p is 0, must be a whole number" in parts(explore.memory(p=0))[1]


@pytest.mark.parametrize("p", [2, 4, 7])
def test_layers_are_drawn_on_their_ranks(p):
    picture = parse(draw.placement_svg(p))
    found = [box for box in boxes(picture) if box[1] >= 44]
    assert len(found) == 3 * 2 * p + 2 * 2 * p  # a box a layer; two copies in the last panel
    said = [text for text, _, _ in words(picture)]
    assert [text for text in said if text.endswith(" hops")] == [
        f"{hops} hops" for hops in (p - 1, 2 * p - 1, 2 * p - 2, p - 1)
    ]
    columns = Counter(round(x) for _, x, *_ in found)
    assert sorted(columns.values()) == [5] * (2 * p)


@pytest.mark.parametrize(("p", "m", "c"), [(2, 6, 0.25), (3, 9, 0.5), (4, 12, 1.0)])
def test_a_round_trip_is_as_long_as_it_says(p, m, c):
    picture = draw.trip_svg(p, m, c)
    root = parse(picture)
    (text,) = [text for text, _, _ in words(root) if text.endswith(" c")]
    assert text == f"{p} (f + b + w) + {2 * (p - 1)} c"
    left, right = sorted(
        float(line.get("x1"))
        for line in root.iter(f"{SVG}line")
        if line.get("stroke-dasharray") == "3 3"
    )
    x = clock(root, simulate(one_f_one_b(p, m), c=c).makespan)
    assert math.isclose(right - left, x(3 * p + 2 * (p - 1) * c) - x(0), abs_tol=0.05)


def test_a_round_trip_needs_a_steady_state():
    with pytest.raises(ValueError, match="must be at least 2 and at least 3 p = 12"):
        draw.trip_svg(4, 11)


def test_steps_interlock_where_nobody_waits():
    plan = zb_v(3, 6)
    waited, free = two_steps(plan, 0.5, 0.5, 0.5)
    once = simulate(plan, 0.5, 0.5, 0.5)
    assert waited.makespan == 2 * once.makespan
    assert free.makespan == pytest.approx(once.makespan + 18)  # each rank goes on at once
    for timeline in (waited, free):
        for row in timeline.rows:
            assert all(a.end <= b.start for a, b in pairwise(row))
            assert {s.action.microbatch for s in row} == set(range(12))
    assert "each rank goes on by itself" in draw.steps_svg(plan)


@pytest.mark.parametrize("layers", [2, 8, 16])
def test_the_first_rank_keeps_as_much_whatever_p_is(layers):
    picture = parse(draw.kept_svg(layers))
    groups = defaultdict(int)
    for _, _, y, *_ in boxes(picture):
        groups[y < 26 + layers * 12] += 1
    degrees = layers.bit_length()
    assert groups[True] == degrees * layers
    assert groups[False] == sum(layers >> i for i in range(degrees))
    with pytest.raises(ValueError, match="must be a power of two"):
        draw.kept_svg(6)


def test_a_narrow_comparison_may_be_scaled_up():
    timelines = [simulate(one_f_one_b(3, 5)), simulate(zb_h1(3, 5))]
    wide, narrow = draw.compare_svg(timelines), draw.compare_svg(timelines, width=400)
    styles = [re.search(r"max-width:(\d+)px;min-width:(\d+)px", each) for each in (wide, narrow)]
    assert int(styles[1][2]) < 340 < int(styles[0][2])
    assert int(styles[1][1]) > float(re.search(r"viewBox='0 0 (\S+)", narrow)[1])
