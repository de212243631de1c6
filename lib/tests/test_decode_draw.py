"""The pictures of the decoding chapter: every slot, lease and bar is where the books say."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import SVG, inside, parse, told

from weft.draw.decode import blocks
from weft.draw.decode.blocks import HUES, memory_svg
from weft.draw.decode.kinds import kinds_svg
from weft.draw.decode.serving import leases_svg
from weft.draw.decode.throughput import speculation_svg, throughput_svg
from weft.draw.decode.timeline import timeline_svg
from weft.explore import decode as explore_decode
from weft.plan.decode.batching import POLICIES, batched
from weft.plan.decode.blocks import Blocks
from weft.plan.decode.server import SERVED, Server, expected_tokens, speculation
from weft.plan.decode.serving import MEMORIES, Request, requests, serve
from weft.plan.decode.sharing import parallel
from weft.plan.hardware import CHIPS


def boxes(root, **wanted):
    """Rectangles, and those of paths, with these attributes: (x, y, width, height)."""
    found = []
    for rect in root.iter(f"{SVG}rect"):
        if all(rect.get(name.replace("_", "-")) == value for name, value in wanted.items()):
            found.append(tuple(float(rect.get(k)) for k in ("x", "y", "width", "height")))
    box = re.compile(r"M(\S+) ([\d.]+)h([\d.]+)v([\d.]+)h")
    for path in root.iter(f"{SVG}path"):
        if all(path.get(name.replace("_", "-")) == value for name, value in wanted.items()):
            found += [tuple(map(float, x)) for x in box.findall(path.get("d"))]
    return found


def words(root):
    return [
        (text.text, float(text.get("x")), float(text.get("y"))) for text in root.iter(f"{SVG}text")
    ]


# --- the map --------------------------------------------------------------------------------------


@st.composite
def pools(draw):
    pool = Blocks(draw(st.integers(1, 14)), draw(st.sampled_from([1, 3, 4, 16, 40])))
    for name in "abcdefghij":
        kind = draw(st.sampled_from(["add", "add", "extend", "fork", "drop"]))
        try:
            if kind == "add" or not pool.sequences:
                pool.add(name, draw(st.integers(0, 3 * pool.block)))
                continue
            other = draw(st.sampled_from(pool.sequences))
            if kind == "fork":
                pool.fork(other, name)
            elif kind == "drop":
                pool.drop(other)
            else:
                pool.extend(other, draw(st.integers(0, 5)))
        except MemoryError:
            pass
    return pool


@settings(max_examples=60)
@given(pool=pools(), columns=st.sampled_from([None, 1, 3]))
def test_every_token_and_every_wasted_slot_is_in_the_map(pool, columns):
    root = inside(parse(memory_svg(pool, columns)), wide_ones=True)
    slots = list(root.iter(f"{SVG}path"))
    dashed = [path for path in slots if path.get("stroke-dasharray")]
    assert sum(len(_parts(path)) for path in dashed) == pool.wasted
    filled = sum(len(_parts(path)) for path in slots if path not in dashed)
    assert filled == sum(pool.filled.values())
    tips = [rect[0].text for rect in root.iter(f"{SVG}rect") if len(rect)]
    assert sum("is free" in tip for tip in tips) == pool.free
    texts = [text for text, *_ in words(root)]
    for block in range(pool.count):
        if holders := pool.holders(block):
            owners = " + ".join(holders)
            assert f"{block}: {owners}" in texts
            assert sum(tip.startswith(f"block {block} of {owners}: tokens") for tip in tips) == len(
                holders
            )
        else:
            assert f"block {block} is free" in tips and str(block) in texts
    for name in pool.sequences:
        assert f"{name}: {pool.length(name)} tokens in blocks" in [text for text, *_ in words(root)]
        table = ", ".join(map(str, pool.table(name))) or "none"
        assert f"Sequence {name} has {pool.length(name)} tokens in blocks {table}." in told(root)


def test_a_shared_block_has_the_colours_of_all_who_hold_it():
    pool = Blocks(count=5, block=4)
    pool.add("a", 6)
    pool.fork("a", "b")
    pool.extend("b", 1)
    root = parse(memory_svg(pool))
    there = {}
    for block in range(3):
        label = next(text for text, *_ in words(root) if text.startswith(f"{block}: "))
        x0, y0 = next((x, y) for text, x, y in words(root) if text == label)
        for colour in HUES[:2]:
            near = boxes(root, fill=colour.hexadecimal)
            found = [box for box in near if abs(box[0] - x0) < 0.1 and y0 < box[1] < y0 + 24]
            there[block, colour.hexadecimal] = found
    a, b = (hue.hexadecimal for hue in HUES[:2])
    assert [len(there[0, hue]) for hue in (a, b)] == [1, 1]
    assert there[0, a][0][3] == there[0, b][0][3] == 11  # half of a slot's height each
    assert [len(there[1, hue]) for hue in (a, b)] == [1, 0]
    assert [len(there[2, hue]) for hue in (a, b)] == [0, 1]
    assert "Held by several: blocks 0." in told(root)


def test_tables_stand_in_the_order_of_the_tokens():
    pool = Blocks(count=6, block=2)
    for _ in range(3):
        for name in ("x", "y"):
            (pool.extend if name in pool.sequences else pool.add)(name, 2)
    root = parse(memory_svg(pool))
    rows = {}
    for text, x, y in words(root):
        if re.fullmatch(r"\d", text) and y < 100:
            rows.setdefault(y, []).append((x, int(text)))
    assert [[block for _, block in sorted(row)] for _, row in sorted(rows.items())] == [
        list(pool.table(name)) for name in ("x", "y")
    ]


def test_ten_sequences_keep_their_colours_apart_as_far_as_there_are_any():
    names = list("abcdefghij")
    assert len({blocks.hue(names, n).hexadecimal for n in names[:8]}) == 8
    assert blocks.hue(names, "i") == blocks.hue(names, "a")


# --- memories over time ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served():
    asked = requests(14, seed=4, prompt=6, output=12, longest=64)
    return [serve(asked, 128, memory, 4, 64) for memory in MEMORIES]


def area(path):
    """Of outlines made of M, V, H and z."""
    total = 0.0
    for outline in path.split("M")[1:]:
        x, y, points = 0.0, 0.0, []
        for kind, *numbers in re.findall(r"([ VHz]?)(-?[\d.]+)?(?: (-?[\d.]+))?", outline):
            if numbers[0] and numbers[1]:
                x, y = float(numbers[0]), float(numbers[1])
            elif kind == "V":
                y = float(numbers[0])
            elif kind == "H":
                x = float(numbers[0])
            points.append((x, y))
        pairs = zip(points, points[1:] + points[:1], strict=True)
        total += abs(sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairs)) / 2
    return total


def test_areas_are_slots_times_steps(served):
    root = inside(parse(leases_svg(served)))
    panels = boxes(root, fill_opacity=".08")[1:]  # the first is the legend's
    assert len(panels) == 4
    for service, (_, top, wide, high) in zip(served, panels, strict=True):
        unit = wide / max(s.steps for s in served) * high / service.capacity
        pale = dark = 0.0
        for path in root.iter(f"{SVG}path"):
            below = float(re.match(r"M\S+ ([\d.]+)", path.get("d"))[1])
            if top - 0.1 <= below <= top + high + 0.1:
                if len(path):
                    pale += sum(w * h for *_, w, h in _parts(path))
                else:
                    dark += area(path.get("d"))
        leased = sum((x.stop - x.start) * (x.end - x.begin) for x in service.leases)
        assert pale / unit == pytest.approx(leased, rel=0.01)
        assert dark / unit == pytest.approx(sum(m.used for m in service.moments), rel=0.01)


def _parts(path):
    box = re.compile(r"M(\S+) ([\d.]+)h([\d.]+)v([\d.]+)h")
    return [tuple(map(float, x)) for x in box.findall(path.get("d"))]


def test_a_picture_can_end_early(served):
    root = inside(parse(leases_svg(served[:1], until=10)))
    tips = {p[0].text for p in root.iter(f"{SVG}path") if len(p)}
    begun = {life.sequence for life in served[0].lives if life.begin < 10}
    assert len(tips) == len(begun) < 14


def test_leases_are_told_in_words(served):
    text = told(parse(leases_svg(served)))
    for service in served:
        assert f"{service.memory}: up to {max(m.running for m in service.moments)} " in text
        assert f"served after {service.steps} steps" in text


# --- batches, kinds and throughput ----------------------------------------------------------------

ASKED = [Request(4, 9), Request(6, 4), Request(3, 12), Request(24, 5, 3), Request(5, 8, 5)]


def test_every_request_of_every_step_has_a_box_as_long_as_the_step():
    served = [batched(ASKED, policy, rows=3, budget=8) for policy in POLICIES]
    root = inside(parse(timeline_svg(served)))
    tips = [rect for rect in root.iter(f"{SVG}rect") if len(rect)]
    parts = [(step, part) for one in served for step in one.steps for part in step.parts]
    assert len(tips) == len(parts)
    unit = 480 / max(one.end for one in served)
    for rect, (step, part) in zip(tips, parts, strict=True):
        assert float(rect.get("x")) == pytest.approx(step.begin * unit, abs=0.01)
        assert float(rect.get("width")) == pytest.approx((step.end - step.begin) * unit, abs=0.01)
        name = "ABCDE"[part.request]
        assert rect[0].text.startswith(f"{name}: ") and ("prompt" in rect[0].text) == part.prompt
    dashed = [rect for rect in root.iter(f"{SVG}rect") if rect.get("stroke-dasharray")]
    assert len(dashed) - 1 == sum(len(step.held) for one in served for step in one.steps) > 0
    for one in served:
        assert f"{one.policy}: {len(one.steps)} steps" in told(root)


def test_kinds_keep_as_many_pairs_as_they_say():
    root = inside(parse(kinds_svg()))
    tips = [mark[0].text for mark in root.iter() if len(mark) and mark[0].tag == f"{SVG}title"]
    assert tips.count("a key") == tips.count("a value") == 8 + 2 + 1
    assert sum(tip.startswith("query head") for tip in tips) == 4 * 8
    wide = [w for _, _, w, h in boxes(root) if h == 20]
    assert sum(wide[-2:]) == pytest.approx(10 * 576 / 128)


@pytest.mark.parametrize("kind", ["70b mha", "70b gqa", "70b mla"])
def test_the_ring_is_where_memory_is_full(kind):
    server = Server(SERVED[kind], CHIPS["h100"], 4)
    root = inside(parse(throughput_svg(server, 8192)))
    room = min(server.room(8192), 1024)
    assert f"{room} sequences of 8,192 tokens fit." in told(root)
    ring, point = root.iter(f"{SVG}circle")
    assert (ring.get("cx"), ring.get("cy")) == (point.get("cx"), point.get("cy"))
    assert point[0].text == f"{room} sequences fit"


def test_no_ring_where_nothing_fits():
    server = Server(SERVED["70b gqa"], CHIPS["h100"], 1)
    root = inside(parse(throughput_svg(server, 8192)))
    assert "No sequence fits." in told(root) and not list(root.iter(f"{SVG}circle"))


def test_guesses_of_a_picture_are_the_plans():
    server = Server(SERVED["llama3-70b"], CHIPS["h100"], 4)
    text = told(parse(speculation_svg(server, (1024, 32768), 0.8, 4, 0.05)))
    for context in (1024, 32768):
        first, last = (speculation(server, b, context, 0.8, 4, 0.05) for b in (1, 1024))
        assert f"context {context:,}: {first:.1f} for one sequence, {last:.1f} for 1024" in text


# --- sliders --------------------------------------------------------------------------------------


def test_sliders_of_throughput():
    box = explore_decode.throughput()
    server = Server(SERVED["llama3-70b"], CHIPS["h100"], 4)
    assert f"320 KiB for a token; {server.room(8192)} sequences fit." in box
    assert f"takes {server.seconds(16, 8192) * 1e3:.1f} ms or more" in box
    assert "Attention is bound by memory." in box and box.count("<svg") == 1
    assert "bound by compute" in explore_decode.throughput(kind="mla", cache=1, chip="a100-80")
    assert "if they fitted" in explore_decode.throughput(kind="mha", batch=64)
    assert "must be one of mha, gqa, mqa, mla" in explore_decode.throughput(kind="none")


def test_sliders_of_guesses():
    box = explore_decode.guesses(acceptance=80, guesses=4, draft=5)
    assert f"{expected_tokens(0.8, 4):.2f} tokens in a step, which checks 4 guesses" in box
    assert "takes 1.20 times as long as one without" in box


def test_sliders_of_forks():
    for prompt in (3, 4, 8):
        for written in (0, 1, 5):
            box = explore_decode.fork(prompt=prompt, written=written, samples=3)
            together, apart = parallel(prompt, written, 3, block=4)
            assert f"tokens in {together} blocks, where each by itself would take {apart}" in box
    assert "2 blocks were copied" in explore_decode.fork(prompt=6, written=1, samples=3)
    assert "1 block was copied" in explore_decode.fork(prompt=6, written=1, samples=2)
    assert "There is no picture" in explore_decode.fork(samples=0)
