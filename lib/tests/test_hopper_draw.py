"""The pictures and sliders of the hopper chapter: every mark is where the game says."""

import re
from itertools import pairwise, product

import pytest
from pictures import SVG, inside, parse

from weft.draw.hopper import overlaps, registers
from weft.draw.hopper import schedule as draw
from weft.explore import hopper as explore
from weft.plan.hopper.schedule import POLICIES, SM, TILES, UNITS, Tile, work

BF16 = TILES["bf16", 128, False]
ODD = Tile(192, 80, warpgroups=3)
TIP = re.compile(r"(\w+) of (warpgroup (\d)|the loading warp), (\S+) to (\S+)")


def tipped(root):
    """The boxes that say what they are: (step, agent, start, end, x, y, width, height)."""
    found = []
    for rect in root.iter(f"{SVG}rect"):
        if len(rect):
            step, _, group, start, end = TIP.fullmatch(rect[0].text).groups()
            box = [float(rect.get(side)) for side in ("x", "y", "width", "height")]
            clocks = (float(time.replace(",", "")) for time in (start, end))
            found.append((step, group or "load", *clocks, *box))
    return found


def words(root):
    return {
        text.text: (float(text.get("x")), float(text.get("y"))) for text in root.iter(f"{SVG}text")
    }


@pytest.mark.parametrize("tile", [BF16, ODD], ids=["published", "odd"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_stretch_is_drawn_in_the_row_of_its_unit(policy, tile):
    root = parse(draw.units(policy, tile, rounds=2.25))
    inside(root, wide_ones=True)
    clocks = 2.25 * work(tile)["tensor"]
    played = draw.steady(policy, tile, clocks)
    labels = {name: y for name, (_, y) in words(root).items()}
    boxes = tipped(root)
    assert len(boxes) == len(played.stretches)
    scale = (draw.WIDE - draw.RIGHT - draw.LEFT) / clocks
    for step, agent, start, end, x, y, wide, high in boxes:
        (mine,) = (
            s
            for s in played.stretches
            if (str(s.step), s.agent) == (step, agent)
            and abs(s.start - start) < 1
            and abs(s.end - end) < 1
        )
        assert x == pytest.approx(draw.LEFT + mine.start * scale, abs=0.02)
        assert wide == pytest.approx((mine.end - mine.start) * scale, abs=0.02)
        assert y < labels[draw.LABELS[mine.unit]] < y + high
    assert {draw.LABELS[s.unit] for s in played.stretches} <= {draw.LABELS[u] for u in UNITS}


def test_matmuls_have_the_warpgroups_hue_and_loads_their_own():
    picture = draw.units("overlapped", ODD)
    for colour in draw.GROUPS:
        assert f"fill:var(--{colour.variable},{colour.hexadecimal})" in picture
    fills = {}
    for rect in parse(picture).iter(f"{SVG}rect"):
        if len(rect):
            step, _, group, *_ = TIP.fullmatch(rect[0].text).groups()
            fills.setdefault((step[0], group), set()).add(rect.get("fill"))
    assert all(len(found) == 1 for found in fills.values())
    assert len({*map(frozenset, (fills["S", g] for g in "123"))}) == 3
    assert fills["S", "1"] != fills["O", "1"] != fills["X", "1"]
    assert fills["K", None] == fills["V", None]


def test_steady_begins_with_a_matmul_of_the_first_warpgroup_and_shares_its_length():
    pictures = {policy: draw.steady(policy, BF16, 5000.0) for policy in POLICIES}
    for played in pictures.values():
        first = next(s for s in played.stretches if s.agent == "1" and s.unit == "tensor")
        assert (first.start, str(first.step)) == (0.0, "S4")
        assert played.makespan <= 5000
    full = pictures["overlapped"].busy
    assert full["tensor"] == pytest.approx(5000, rel=0.01)
    assert full["exp"] == pytest.approx(2500, rel=0.1)


def test_without_turns_no_warpgroup_has_a_matmul_while_both_take_exponentials():
    clocks = 4 * work(BF16)["tensor"]

    def softmax_alone(policy):
        mine = draw.steady(policy, BF16, clocks).stretches
        cuts = sorted({edge for s in mine for edge in (s.start, s.end)})
        taking = {kind: set() for kind in ("exp", "tensor")}
        for a, b in pairwise(cuts):
            for s in mine:
                if s.unit in taking and s.start <= a and b <= s.end:
                    taking[s.unit].add((a, b))
        return sum(b - a for a, b in taking["exp"] - taking["tensor"]) / clocks

    assert softmax_alone("specialized") > 0.1 > 0.01 > softmax_alone("overlapped")


def test_warpgroups_are_compared_on_one_axis_with_what_they_reach():
    policies = ("specialized", "not_specialized", "overlapped")
    root = parse(draw.turns(policies, BF16, rounds=2))
    inside(root, wide_ones=True)
    clocks = 2 * work(BF16)["tensor"]
    told = root.find(f"{SVG}desc").text
    shares = [t.text for t in root.iter(f"{SVG}text") if t.text.startswith("tensor cores busy")]
    for policy, share in zip(policies, shares, strict=True):
        busy = draw.steady(policy, BF16, clocks).busy["tensor"] / clocks
        assert share == f"tensor cores busy {100 * busy:.1f} %"
        assert f"{draw.NAMES[policy]}: {share}." in told
    matmuls = [b for b in tipped(root) if b[0][0] in "SO"]
    others = [b for b in tipped(root) if b[0][0] not in "SO"]
    assert {b[7] for b in matmuls} == {b[7] for b in others} == {draw.CELL / 2}
    rows = sorted({b[5] for b in matmuls})
    assert len(rows) == 3 * BF16.warpgroups
    assert {b[5] - draw.CELL / 2 for b in others} <= set(rows)


def test_room_draws_parts_up_to_what_they_add_up_to_and_the_limit():
    tiles = {"ours": BF16, "too much": Tile(128, 256), "odd": ODD}
    root = parse(draw.room(tiles))
    inside(root, wide_ones=True)
    text = list(words(root))
    assert text.count("fits") <= 1  # words() keeps one of each
    assert f"{BF16.registers(True)} of {BF16.most_registers}" in text
    assert f"{Tile(128, 256).shared // 1024} of {SM.shared // 1024} KiB" in text
    told = root.find(f"{SVG}desc").text
    for name, tile in tiles.items():
        verdict = "fits" if tile.fits() else "does not fit"
        assert re.search(rf"{name}: .* registers and .* KiB, {verdict}\.", told)
    limits = [p for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "2"]
    assert len(limits) == 2 * len(tiles)
    bars = {}
    for rect in root.iter(f"{SVG}rect"):
        if len(rect):
            bars.setdefault(float(rect.get("y")), []).append(rect)
    assert len(bars) == 2 * len(tiles)
    for rects in bars.values():
        edges = [(float(r.get("x")), float(r.get("width"))) for r in rects]
        ends = [x + wide for x, wide in edges]
        assert [x for x, _ in edges[1:]] == pytest.approx(ends[:-1], abs=0.03)


def test_bars_cross_the_limit_where_they_do_not_fit():
    def crossed(tile):
        root = parse(draw.room({"it": tile}))
        limits = [p for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "2"]
        at = [float(p.get("d")[1:].split()[0]) for p in limits]
        ends = {}
        for r in (r for r in root.iter(f"{SVG}rect") if len(r)):
            y = float(r.get("y"))
            ends[y] = max(ends.get(y, 0), float(r.get("x")) + float(r.get("width")))
        return [end > limit for (_, end), limit in zip(sorted(ends.items()), at, strict=True)]

    assert crossed(BF16) == [False, False]
    assert crossed(Tile(128, 208)) == [True, True]
    assert crossed(Tile(128, 256, stages=1)) == [True, False]


def test_pictures_are_the_same_each_time_and_refuse_nonsense():
    assert draw.units() == draw.units()
    assert draw.turns() == draw.turns()
    with pytest.raises(ValueError, match="rounds is 0, must be above 0"):
        draw.units(rounds=0)
    with pytest.raises(ValueError, match="policies is empty"):
        draw.turns(())
    with pytest.raises(ValueError, match="tiles is empty"):
        draw.room({})
    with pytest.raises(ValueError, match="policy is 'none', must be one of"):
        draw.units("none")


# --- sliders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy, K, keys, dtype",
    [
        *product(POLICIES, (64, 256), (64, 176), ("bf16",)),
        *product(("overlapped",), (64, 128, 256), (64, 128, 256), ("fp8",)),
    ],
)
def test_the_schedule_slider_draws_every_choice(policy, K, keys, dtype):
    html = explore.schedule(policy=policy, K=K, keys=keys, dtype=dtype)
    assert "<svg" in html and len(html) < 40_000
    summary = html.partition("weft-summary'>")[2]
    assert re.search(r"Tensor cores busy [\d.]+\u00a0% .* [\d.]+ [TP]FLOP/s on an H100", summary)
    fits = Tile(K, keys, dtype=dtype).fits(POLICIES[policy].overlapped)
    assert ("does not fit" in summary or "do not fit" in summary) != fits


def test_the_other_sliders_say_what_they_show():
    html = explore.turns(K=128, keys=176)
    without, in_turns, overlapped = map(float, re.findall(r"([\d.]+) TFLOP/s", html))
    assert without < in_turns < overlapped
    html = explore.room(K=64, keys=128, warpgroups=3)
    assert "<svg" in html and "the exponential unit 1536, 100.0\u00a0% of it" in html
    assert "495 TFLOP/s" in html and "not fit" not in html.partition("weft-summary")[2]


@pytest.mark.parametrize(
    "box, choices, says",
    [
        (explore.schedule, {"policy": "fast"}, "policy is &#x27;fast&#x27;, must be one of"),
        (explore.schedule, {"keys": 100}, "keys is 100, must be a multiple of 16"),
        (explore.turns, {"K": 0}, "K is 0, must be a whole number"),
        (explore.room, {"dtype": "fp8", "keys": 48}, "keys is 48, must be a multiple of 32"),
    ],
)
def test_a_choice_that_cannot_be_gives_a_sentence(box, choices, says):
    html = box(**choices)
    assert "<svg" not in html and says in html


# --- overlaps, the ring, registers ----------------------------------------------------------------


def test_overlaps_has_a_row_for_each_unit_of_each_policy_and_its_share():
    policies = ("simple", "overlapped")
    root = parse(overlaps.overlaps_svg(policies, ODD, rounds=2))
    inside(root)
    clocks = 2 * work(ODD)["tensor"]
    games = [draw.steady(policy, ODD, clocks) for policy in policies]
    shown = [s for game in games for s in game.stretches if s.unit in overlaps.SHOWN]
    boxes = tipped(root)
    assert len(boxes) == len(shown)
    assert len({box[5] for box in boxes}) == len(policies) * len(overlaps.SHOWN)
    scale = (overlaps.WIDE - overlaps.LEFT - overlaps.RIGHT) / clocks
    for _, _, start, _, x, *_ in boxes:
        assert x == pytest.approx(overlaps.LEFT + start * scale, abs=0.2)
    told = root.find(f"{SVG}desc").text
    for policy, game in zip(policies, games, strict=True):
        share = f"{100 * game.busy['tensor'] / clocks:.1f} %"
        assert f"{draw.NAMES[policy]}: tensor cores busy {share}." in told.replace("\u00a0", " ")
    with pytest.raises(ValueError, match="policies is empty"):
        overlaps.overlaps_svg(())


@pytest.mark.parametrize("tile", [Tile(128, 128), ODD, Tile(64, 128, stages=3)])
def test_in_the_ring_bits_flip_when_tiles_land_and_when_the_last_has_read(tile):
    tiles = 7
    root = parse(overlaps.ring_svg(tile, tiles))
    inside(root)
    tips = [rect[0].text for rect in root.iter(f"{SVG}rect") if len(rect)]
    copies = dict(re.findall(r"copy of K(\d), [\d,]+ to ([\d,]+)", "\n".join(tips)))
    assert sorted(copies) == [str(j) for j in range(tiles)]
    assert sum(" of warpgroup " in tip for tip in tips) == tiles * tile.warpgroups
    bits = [re.fullmatch(r"([01]), ([\d,]+) to ([\d,]+)", tip) for tip in tips]
    bits = [bit.groups() for bit in bits if bit]
    first = [bit for bit in bits if bit[1] == "0"]
    assert len(first) == 2 * tile.stages and {bit[0] for bit in first} == {"0"}
    ends = {bit[2] for bit in bits}
    assert set(copies.values()) <= ends  # a copy's end flips a bit
    assert len(bits) == 2 * (tile.stages + tiles)


def test_held_adds_up_to_the_tiles_registers_and_marks_what_there_is():
    tiles = {"ours": BF16, "odd": ODD, "small": TILES["bf16", 64, False]}
    root = parse(registers.held_svg(tiles))
    inside(root)
    told = root.find(f"{SVG}desc").text
    for name, tile in tiles.items():
        parts = registers.held(tile)
        assert sum(parts.values()) == tile.registers(True)
        assert f"{name}, {tile.keys} keys: O {parts['O']:g}, S {parts['S']:g}" in told
        assert f"{tile.registers(True)} of at most {tile.most_registers} registers" in told
    scale = (registers.WIDE - registers.RIGHT) / (registers.MOST_REGISTERS + 5)
    thick = [p for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "2"]
    at = [float(p.get("d")[1:].split()[0]) for p in thick]
    assert at == pytest.approx([t.most_registers * scale for t in tiles.values()], abs=0.02)
    with pytest.raises(ValueError, match="tiles is empty"):
        registers.held_svg({})
