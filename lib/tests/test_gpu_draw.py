"""The pictures of the chapter on GPUs: every box, lane, bar and cell is where the plan says."""

import re

import pytest
from pictures import SVG, apart, inside, parse, tips, told, words

from weft.draw.figure import FORWARD, TRAVEL
from weft.draw.gpu import (
    hiding_svg,
    machine_svg,
    queue_svg,
    residents_svg,
    rows_svg,
    vector_svg,
    walls_svg,
    waves_svg,
)
from weft.explore import gpu as explore
from weft.plan import gpu as plan
from weft.plan.gpu import Needs
from weft.plan.hardware import CHIPS

BUSY, HOST = FORWARD.hexadecimal, TRAVEL.hexadecimal


def boxes(path):
    """The rectangles of a path of boxes, (x, y, width, height)."""
    found = re.findall(r"M(\S+) ([\d.]+)h([\d.]+)v([\d.]+)h", path.get("d"))
    return [tuple(map(float, box)) for box in found]


def filled(root, colour):
    """The rectangles of one colour: (x, y, width, height)."""
    return [
        tuple(float(rect.get(side)) for side in ("x", "y", "width", "height"))
        for rect in root.iter(f"{SVG}rect")
        if rect.get("fill") == colour
    ]


def cells(root):
    """What stands in square cells, by their place: (x, y) -> the word, and whether it is shut."""
    found, texts = {}, list(root.iter(f"{SVG}text"))
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(side)) for side in ("x", "y", "width", "height"))
        if h != 30:
            continue
        said = [
            t.text for t in texts if x < float(t.get("x")) < x + w and y < float(t.get("y")) < y + h
        ]
        (word,) = said
        found[x, y] = int(word), rect.get("fill") == "none"
    return found


# --- the machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS)
def test_the_machine_says_its_sizes_and_rates(chip):
    root = apart(inside(parse(machine_svg(chip))))
    said, on = words(root), CHIPS[chip]
    assert f"{on.memory / 1e9:g} GB" in said
    assert f"{on.l2 / 1e6:g} MB" in said
    assert f"{on.shared // 1024} KiB" in said
    assert said.count("registers 64 KiB") == said.count("tensor core") == 4
    assert said.count(f"{plan.CAPACITIES[chip].cores // 4} CUDA cores") == 4
    assert f"multiprocessor (SM), 1 of {on.sms}" in said
    assert f"L2 cache, shared by all {on.sms} multiprocessors" in told(root)
    # Latencies and the cache's rate were measured on Hopper, and are said of Hopper alone.
    assert any("262 ns" in word for word in said) == (chip in ("h100", "h200"))


def test_a_machine_that_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="chip is 'h300', must be one of v100"):
        machine_svg("h300")


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "block"), [(11, 4), (8, 4), (3, 8), (7, 2), (1, 1)])
def test_each_element_stands_below_its_number(n, block):
    root = apart(inside(parse(vector_svg(n, block))))
    found = cells(root)
    memory = {x: word for (x, y), (word, _) in found.items() if y < 50}
    lanes = sorted((x, word, shut) for (x, y), (word, shut) in found.items() if y > 50)
    assert sorted(memory.values()) == list(range(n))
    assert len(lanes) == plan.programs(n, block) * block
    for i, (x, word, shut) in enumerate(lanes):
        assert word == i % block
        assert shut == (x not in memory) == (i >= n)
        assert shut or memory[x] == i
    assert f"{plan.programs(n, block)} programs" in told(root)


@pytest.mark.parametrize("case", [(3, 5, 7), (2, 3, 3), (1, 8, 11), (3, 1, 2)])
def test_each_row_has_its_offsets_and_shuts_the_others(case):
    rows, columns, stride = case
    found = cells(apart(inside(parse(rows_svg(*case)))))
    block = plan.power_of_two(columns)
    assert len(found) == rows * block
    for i, (_, (offset, shut)) in enumerate(sorted(found.items(), key=lambda at: at[0][::-1])):
        program, lane = divmod(i, block)
        assert offset == program * stride + lane
        assert shut == (offset not in plan.row(program, columns, stride))


@pytest.mark.parametrize(
    ("draw", "case", "said"),
    [
        (vector_svg, (20, 4), "n is 20, must be at most 14"),
        (rows_svg, (3, 5, 4), "stride is 4, must be at least the 5 columns"),
        (rows_svg, (4, 5, 7), "rows 4, must be at most 8 and 3"),
        (rows_svg, (2, 9, 9), "columns is 9"),
    ],
)
def test_what_has_no_room_is_refused(draw, case, said):
    with pytest.raises(ValueError, match=said):
        draw(*case)


# --- latency --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [(3, 2, 10, 3), (7, 2, 10, 3), (1, 1, 1, 2), (12, 4, 10, 3)])
def test_warps_and_scheduler_are_busy_as_in_the_plan(case):
    warps, work, wait, turns = case
    root = apart(inside(parse(hiding_svg(*case))))
    played = plan.schedule(*case)
    end = max(busy.end for busy in played) + wait
    drawn = [box for box in filled(root, BUSY) if box[3] == 14]
    assert len(drawn) == len(played)
    left = min(x for x, *_ in drawn)
    each = (458 - left) / end
    want = sorted((left + b.start * each, 26 + 17 * b.warp) for b in played)
    assert [(x, y) for x, y, *_ in sorted(drawn)] == [pytest.approx(at, abs=0.02) for at in want]
    (below,) = (boxes(path) for path in root.iter(f"{SVG}path") if path.get("fill") == BUSY)
    assert sum(w for _, _, w, _ in below) == pytest.approx(warps * turns * work * each, rel=1e-2)
    assert f"time: {end} clocks" in words(root)


def test_a_queue_shows_when_the_device_waits():
    seconds, launch = [9e-6, 1e-6, 1e-6, 1e-6], 4e-6
    root = apart(inside(parse(queue_svg(seconds, launch))))
    runs = plan.queue(seconds, launch)
    host = [box for box in filled(root, HOST) if box[3] == 20]
    device = [box for box in filled(root, BUSY) if box[3] == 20]
    assert len(host) == len(device) == 4
    each = (458 - 58) / runs[-1].end
    for run, on_host, on_device in zip(runs, sorted(host), sorted(device), strict=True):
        assert on_host[0] + on_host[2] == pytest.approx(58 + run.launched * each, abs=0.05)
        assert on_device[0] == pytest.approx(58 + run.start * each, abs=0.05)
        assert on_device[2] == pytest.approx((run.end - run.start) * each, abs=0.05)
    assert "12 µs of work, done after 17 µs" in words(root)


# --- residents ------------------------------------------------------------------------------------

NEEDS = [Needs(79), Needs(16, 1), Needs(200, 8, 60000), Needs(255, 12), Needs(33, 5, 9000)]


@pytest.mark.parametrize("chip", ["v100", "h100"])
@pytest.mark.parametrize("needs", NEEDS)
def test_slots_are_taken_by_the_warps_of_residents(chip, needs):
    root = apart(inside(parse(residents_svg(chip, needs))))
    held = plan.residents(chip, needs)
    slots = [tip for _, tip in tips(root) if tip == "empty" or tip.startswith("warp ")]
    assert len(slots) == 64
    want = [f"warp {i % needs.warps} of program {i // needs.warps}" for i in range(held.warps)]
    assert [tip for tip in slots if tip != "empty"] == want
    bold = {text.text for text in root.iter(f"{SVG}text") if text.get("font-weight") == "bold"}
    assert len(bold) == 1
    assert held.limit in bold or (held.limit == "warps" and "slots for 64 warps" in min(bold))
    assert f"{held.programs} of 32" in words(root)
    assert f"{held.programs} are resident" in told(root)


# --- walls and waves ------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["a100-80", "h100", "b200"])
@pytest.mark.parametrize("n", [10**3, 10**6, 10**9])
def test_the_ring_is_on_the_highest_of_three(chip, n):
    root = apart(inside(parse(walls_svg(chip, "fp32", 6e-6, n))))
    assert f"the wall is {'launch' if n < 10**7 else 'memory'}." in told(root)
    (ring,) = [c for c in root.iter(f"{SVG}circle") if c.get("r") == "8"]
    thick = [p for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "3"]
    points = [
        tuple(map(float, at)) for at in re.findall(r"[ML]([\d.]+) ([\d.]+)", thick[0].get("d"))
    ]
    near = min(points, key=lambda at: abs(at[0] - float(ring.get("cx"))))
    assert near[1] == pytest.approx(float(ring.get("cy")), abs=4)


def test_walls_beyond_the_axis_are_refused():
    with pytest.raises(ValueError, match="n is 10, must be from 1000"):
        walls_svg(n=10)


@pytest.mark.parametrize(
    ("programs", "slots"), [(300, 132), (40, 132), (264, 132), (133, 132), (5, 2), (1200, 1056)]
)
def test_a_wave_has_a_cell_for_each_slot(programs, slots):
    root = apart(inside(parse(waves_svg(programs, slots))))
    made = plan.waves(programs, slots)
    paths = list(root.iter(f"{SVG}path"))
    busy = [len(boxes(path)) for path in paths if path.get("fill") == BUSY]
    idle = [len(boxes(path)) for path in paths if path.get("fill") == "none"]
    assert busy == [slots] * bool(made.full) + [made.tail] * bool(made.tail)
    assert sum(idle) == (slots - made.tail) * bool(made.tail)
    for path in paths:
        assert all(x >= 0 and x + w <= 460 for x, _, w, _ in boxes(path))


# --- sliders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "states"),
    [
        (explore.machine, [{"chip": chip} for chip in CHIPS]),
        (explore.hiding, [{"warps": w, "work": c} for w in (1, 3, 12) for c in (1, 4)]),
        (
            explore.occupancy,
            [
                {"chip": c, "registers": r, "warps": w, "shared": s}
                for c in ("v100", "b200")
                for r in (16, 248)
                for w in (1, 16)
                for s in (0, 224)
            ],
        ),
        (explore.walls, [{"n": n, "launch": s} for n in (10**3, 10**8) for s in (1, 16)]),
        (explore.waves, [{"programs": n, "each": k} for n in (1, 5000) for k in (1, 8)]),
    ],
)
def test_every_state_of_a_slider_has_a_picture(function, states):
    seen = set()
    for state in states:
        root = apart(inside(parse(function(**state))))
        seen.add(told(root))
        assert "<p class='weft-summary'>" in function(**state)
    assert len(seen) == len(states)


@pytest.mark.parametrize(
    ("function", "state", "complaint"),
    [
        (explore.machine, {"chip": "x"}, "must be one of v100"),
        (explore.hiding, {"warps": 0}, "warps is 0"),
        (explore.occupancy, {"registers": 0}, "registers is 0"),
        (explore.walls, {"n": 1}, "n is 1, must be from 1000"),
        (explore.waves, {"programs": 0}, "programs is 0"),
    ],
)
def test_a_state_that_does_not_exist_is_a_sentence(function, state, complaint):
    assert complaint in function(**state)


def test_the_slider_says_what_the_plan_says():
    assert "an occupancy of 37.5\u00a0%, limited by registers" in explore.occupancy(registers=80)
    assert "Not one program fits: registers do not suffice" in explore.occupancy(
        registers=248, warps=16
    )
    assert "Bytes take as long as the launch from 20.1 MB on" in explore.walls(launch=6)
    assert "busy 50.0\u00a0% of the time" in explore.hiding(warps=3, work=2)
