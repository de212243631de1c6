"""Pictures of offloading: cells, curves and bars are what the plan says, and a phone shows them."""

import re
from itertools import pairwise, product

import pytest
from pictures import SVG, apart, axis, inside, parse, tips, told, words

from weft.draw.offload.computing import GOAL, LEAST, MOST, computing_svg, thousands
from weft.draw.offload.parts import ROWS as PLACES
from weft.draw.offload.parts import TITLES, parts_svg
from weft.draw.offload.places import LOOKS as STATE_LOOKS
from weft.draw.offload.places import NAMES, REACH, TOO_MUCH, levels_svg
from weft.draw.offload.stream import LOOKS, stream_svg
from weft.draw.offload.update import LOOKS as OPERATION_LOOKS
from weft.draw.offload.update import updates_svg
from weft.explore import offload as explore
from weft.plan.offload.host import DELAYS, HOSTS, computing_share, tokens_for
from weft.plan.offload.places import LEVELS, MACHINES, STRATEGIES, carried, placed
from weft.plan.offload.stream import streamed
from weft.plan.offload.update import LANES, WAYS, OffloadedStep, step_period, step_spans
from weft.plan.units import percent, quantity

SHOWN = {name: HOSTS[name] for name in explore.SHOWN}


def place(mark):
    return tuple(float(mark.get(side)) for side in ("x", "y", "width", "height"))


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("buffers", "lanes"), [(1, 1), (2, 1), (2, 2), (3, 2), (5, 2)])
def test_cells_are_the_moves(buffers, lanes):
    stream = streamed(5, [2, 1, 3, 1, 2], 3, [1, 0, 2, 1, 1], buffers, lanes)
    root = inside(parse(stream_svg(stream)))
    cells = {tip: mark for mark, tip in tips(root)}
    shown = [move for move in stream.moves if move.end > move.start]
    assert len(cells) == len(shown)  # the write that takes no time is not drawn
    lefts = {move.start: [] for move in shown}
    for move in shown:
        cell = cells[f"{move.kind} piece {move.piece}, from {move.start} to {move.end}"]
        x, y, wide, high = place(cell)
        lefts[move.start].append(x)
        assert wide == pytest.approx((move.end - move.start) * wide_of_one(cells), abs=0.02)
        (label,) = (t for t in root.iter(f"{SVG}text") if t.text == move.kind)
        assert y < float(label.get("y")) < y + high  # in the row that is named so
        assert cell.get("fill") == LOOKS[move.piece % buffers % 3]["fill"]
    assert all(max(xs) - min(xs) < 0.02 for xs in lefts.values())
    legend = [word for word in words(root) if word.startswith("buffer")]
    assert legend == [f"buffer {i}" for i in range(min(buffers, 3))]
    assert f"At most {stream.alive()} pieces" in told(root)
    assert ("take turns" in told(root)) == (lanes == 1)


def wide_of_one(cells):
    """The width of one unit of time, from the cell of piece 0's compute."""
    for tip, cell in cells.items():
        if tip.startswith("compute piece 0"):
            return place(cell)[2] / 3


def test_two_pictures_share_an_axis():
    fast, slow = streamed(4, 2, 3, 1), streamed(4, 2, 3, 1, buffers=1)
    roots = [parse(stream_svg(s, until=slow.makespan)) for s in (fast, slow)]
    widths = [{tip: place(mark)[2] for mark, tip in tips(root)} for root in roots]
    first = "read piece 0, from 0 to 2"
    assert widths[0][first] == widths[1][first]
    assert "one buffer" in told(roots[1]) and "2 buffers" in told(roots[0])


def test_a_stream_that_takes_no_time():
    root = inside(parse(stream_svg(streamed(2, 0, 0, 0))))
    assert not tips(root)


# --- when the host updates ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        OffloadedStep(3, 2, 1, 2, 1, 3, 1),
        OffloadedStep(2, 1, 2, 3, 4, 1, 0),
        OffloadedStep(5, 4, 1, 2, 8, 8, 8),
    ],
)
def test_cells_of_the_ways_are_the_simulated_steps(step):
    root = apart(inside(parse(updates_svg(step))))
    cells = [(mark, tip) for mark, tip in tips(root) if "waits" not in tip]
    spans = [(*key, *span) for way in WAYS for key, span in step_spans(way, step, 2).items()]
    shown = [span for span in spans if span[-1] > span[-2]]
    assert len(cells) == len(shown)
    end = max(span[-1] for span in spans)
    rows = {lane: set() for lane in LANES}
    for (mark, tip), (op, i, _, layer, lane, start, stop) in zip(cells, shown, strict=True):
        assert tip.startswith(f"{op}, step {i}, layer {layer}")
        assert mark.get("fill") == OPERATION_LOOKS[op]["fill"]
        x, y, wide, _ = place(mark)
        first = place(cells[0][0])
        scale = first[2] / (shown[0][-1] - shown[0][-2])
        assert x - first[0] == pytest.approx(start * scale, abs=0.5 + 0.01 * end)
        assert wide == pytest.approx((stop - start) * scale, abs=0.02 * (stop - start) + 0.02)
        rows[lane].add(y)
    assert all(len(heights) <= len(WAYS) for heights in rows.values())
    for way in WAYS:
        assert f"a step takes {step_period(way, step):g}" in told(root)


def test_the_gpu_waits_for_what_no_way_hides():
    step = OffloadedStep(3, 2, 1, 2, 1, 3, 1)
    waits = {
        way: [t for _, t in tips(parse(updates_svg(step, [way]))) if "waits" in t] for way in WAYS
    }
    assert waits["after"] == ["the GPU waits for 11"] * 2
    assert waits["layerwise"] == ["the GPU waits for 7"] * 2 and not waits["delayed"]
    with pytest.raises(ValueError, match="ways is empty"):
        updates_svg(step, [])


def test_the_slider_of_the_updates():
    html = explore.updates(microbatches=2, adam=3, link=1)
    assert "takes 29 with the update after the last gradient, 25 layer by layer and 18" in html
    assert "There is no picture" in explore.updates(microbatches=9)
    for m, adam, link in product((1, 8), (1, 8), (0, 8)):
        inside(parse(explore.updates(microbatches=m, adam=adam, link=link)))


# --- the cost of an update -----------------------------------------------------------------------


@pytest.mark.parametrize("way", DELAYS)
def test_the_dots_are_at_the_plans_shares(way):
    for tokens in (LEAST, 2**16, MOST):
        root = inside(parse(computing_svg(SHOWN, 4e14, tokens, way)))
        for (mark, tip), (name, host) in zip(tips(root), SHOWN.items(), strict=True):
            share = computing_share(tokens, host, 4e14, way)
            assert tip == f"{name}, {thousands(tokens)}: {percent(share)}"
            assert axis(root, "y")(float(mark.get("cy"))) == pytest.approx(share, abs=1e-4)
            assert f"{name} {percent(share)}" in told(root)
            need = thousands(tokens_for(GOAL, host, 4e14, way))
            assert f"from {need} tokens" in told(root)


def test_curves_pass_through_their_dots():
    root = parse(computing_svg(SHOWN, 4e14, 2**14))
    paths = [p.get("d") for p in root.iter(f"{SVG}path") if p.get("fill") == "none"]
    assert len(paths) == len(SHOWN)
    for path, (mark, _) in zip(paths, tips(root), strict=True):
        points = [tuple(map(float, pair.split())) for pair in path[1:].split("L")]
        left, right = (
            max(p for p in points if p[0] <= float(mark.get("cx"))),
            min(p for p in points if p[0] >= float(mark.get("cx"))),
        )
        assert left[1] + 0.05 >= float(mark.get("cy")) >= right[1] - 0.05
        assert all(one[1] >= two[1] for one, two in pairwise(points))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: computing_svg(SHOWN, 0), "flops is 0"),
        (lambda: computing_svg(SHOWN, 1e14, 5), "tokens is 5"),
        (lambda: computing_svg(SHOWN, 1e14, way="tea"), "way is 'tea'"),
        (lambda: computing_svg({}, 1e14), "hosts has 0 entries"),
        (lambda: parts_svg(()), "strategies has 0 entries"),
        (lambda: parts_svg(("cloud",)), "strategy is 'cloud'"),
        (lambda: parts_svg(machine="shoe"), "machine is 'shoe'"),
    ],
)
def test_costs_and_parts_without_a_picture(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_parts_are_the_bytes_of_a_parameter():
    root = inside(parse(parts_svg(tuple(STRATEGIES)[1:], microbatches=2)))
    for name in tuple(STRATEGIES)[1:]:
        how, moved = STRATEGIES[name], carried(name, microbatches=2)
        for state in ("weights", "gradients", "optimizer"):
            size = {"weights": 2, "gradients": 2, "optimizer": 12}[state]
            where = PLACES[getattr(how, state)]
            (mark,) = (
                m
                for m, tip in tips(root)
                if tip == f"{TITLES[name]}: {state}, {size} bytes, {where}"
            )
            assert mark.get("fill") == STATE_LOOKS[state]["fill"]
        down, up = moved["host"]
        assert f"{down} down and {up} up between GPU and host" in told(root)
    assert {"64 GB/s", "3.35 TB/s", "76.8 GB/s"} <= set(words(root))


# --- places ---------------------------------------------------------------------------------------


def full(root):
    """How far a bar reaches that is full: to the word that says so."""
    (word,) = (text for text in root.iter(f"{SVG}text") if text.text == "full")
    return float(word.get("x"))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_bars_are_shares_of_the_capacity(strategy):
    for node, params, nodes in product(MACHINES.values(), (3e9, 2e11), (1, 4)):
        root = inside(parse(levels_svg(params, strategy, node, nodes)))
        held = placed(params, strategy, node, nodes)
        bars = {tip: place(mark) for mark, tip in tips(root)}
        for level in LEVELS:
            total, room = held[level].total, node.room(level)
            mine = {tip: b for tip, b in bars.items() if tip.startswith(NAMES[level])}
            drawn = sum(b[2] for tip, b in mine.items() if "do not fit" not in tip)
            assert drawn == pytest.approx(full(root) * min(total / room, REACH), abs=0.05)
            over = [tip for tip in bars if tip.startswith(NAMES[level]) and "do not fit" in tip]
            assert bool(over) == (total > room)
            assert f"{quantity(total, 'B')} of {quantity(room, 'B')}" in words(root)
            verdict = "does not fit" if total > room else "it fits"
            assert (f"{NAMES[level]} lie" in told(root)) == bool(total)
            assert not total or verdict in told(root)


def test_a_little_too_much_is_shown_too():
    root = parse(levels_svg(97e9, "infinity-host", MACHINES["DGX-2"]))
    over = [(mark, tip) for mark, tip in tips(root) if tip.endswith("do not fit")]
    assert [tip for _, tip in over] == ["host memory: 52 GB do not fit"]
    room = MACHINES["DGX-2"].room("host")
    wide = full(root) * (97e9 * 16 / room - 1)
    assert place(over[0][0])[2] == pytest.approx(wide, abs=0.02)


def test_colours_are_named_in_the_legend():
    root = parse(levels_svg(5e10, "infinity-disk", MACHINES["DGX-2"]))
    assert {"weights", "gradients", "optimizer", "does not fit"} <= set(words(root))
    fills = {mark.get("fill") for mark, _ in tips(root)}
    assert fills == {look["fill"] for look in STATE_LOOKS.values()}
    over = parse(levels_svg(5e10, "device", MACHINES["DGX-2"]))
    assert TOO_MUCH["fill"] in {mark.get("fill") for mark, _ in tips(over)} - fills


# --- sliders --------------------------------------------------------------------------------------


def summary(html):
    last = html.partition("<p class='weft-summary'>")[2]
    return re.sub(r"<[^>]+>", "", last).replace("\u00a0", " ")


def picture(html):
    return inside(parse(re.search(r"<svg.*</svg>", html, re.S)[0]))


def test_streaming_says_what_the_plan_says():
    for buffers, lanes in product((1, 2, 3), (1, 2)):
        html = explore.streaming(pieces=7, buffers=buffers, lanes=lanes)
        picture(html)
        stream = streamed(7, 2, 3, 1, buffers, lanes)
        assert f"The step takes {stream.makespan}" in summary(html)
        faster = f"{42 / stream.makespan:.4g} times as fast as through one buffer"
        assert (faster in summary(html)) == (buffers > 1)
        assert f"cannot take less than {stream.bound}" in summary(html)
    assert "a third buffer would help" in summary(explore.streaming(buffers=2, lanes=2))
    assert "nothing overlaps" in summary(explore.streaming(buffers=1))


def test_computing_says_what_the_plan_says():
    for chip, way, tokens in product(explore.REACHES, DELAYS, (4096, 2**20)):
        html = explore.computing(chip=chip, way=way, tokens=tokens)
        picture(html)
        for name in explore.SHOWN:
            need = tokens_for(GOAL, HOSTS[name], explore.REACHES[chip], way)
            assert f"{need:,.0f} on {name}" in summary(html)


def test_living_says_what_fits():
    for machine, strategy in product(MACHINES, STRATEGIES):
        picture(explore.living(machine=machine, strategy=strategy, params=40, nodes=2))
    assert summary(explore.living(params=1000)).startswith("The states fit.")
    text = summary(explore.living(machine="DGX H100", strategy="offload", params=200))
    assert text.startswith("The states do not fit devices and host memory.")
    assert "16 billion" in summary(explore.living(strategy="offload"))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: explore.streaming(pieces=0), "pieces is 0"),
        (lambda: explore.streaming(lanes=3), "lanes is 3"),
        (lambda: explore.streaming(compute=0), "compute is 0"),
        (lambda: explore.computing(chip="abacus"), "chip is"),
        (lambda: explore.computing(way="tea"), "way is"),
        (lambda: explore.computing(tokens=0), "tokens is 0"),
        (lambda: explore.computing(tokens=8), "tokens is 8"),
        (lambda: explore.living(machine="shoe"), "machine is"),
        (lambda: explore.living(strategy="cloud"), "strategy is"),
        (lambda: explore.living(params=0), "params is 0"),
    ],
)
def test_sliders_say_why_there_is_nothing(call, text):
    html = call()
    assert "There is no picture" in html and text in html
