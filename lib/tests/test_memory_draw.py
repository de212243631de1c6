"""Bars of memory: as long as the bytes that they stand for, up to the line where they are cut."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import SVG, inside, parse, told

from weft.draw.figure import measure
from weft.draw.memory import LOOKS, Kept, activations_svg, bars_svg, kept, stages_svg
from weft.explore import memory as explore
from weft.plan.hardware import CHIPS, Chip
from weft.plan.memory.activation import activations
from weft.plan.memory.partition import parameters
from weft.plan.memory.passing import RESERVE, passing
from weft.plan.memory.states import STAGES, model_states
from weft.plan.shape.model import SHAPES

FILLS = {look.paint()["fill"]: part for part, look in LOOKS.items()}
MODEL = SHAPES["gpt-7.5b"]


def bars(root):
    """By row, from above: the lengths of its parts, and of what is left."""
    rows = {}
    for rect in root.iter(f"{SVG}rect"):
        if len(rect):  # the legend's have no tips
            part = FILLS.get(rect.get("fill"), "left")
            rows.setdefault(float(rect.get("y")), {})[part] = float(rect.get("width"))
    return [rows[y] for y in sorted(rows)]


def lines(root):
    """Where the memories of chips are marked."""
    return [float(line.get("x1")) for line in root.iter(f"{SVG}line")]


def of_memory(*gigabytes):
    return [Chip(f"c{i}", {"bf16": 1e12}, 1e12, gb * 1e9) for i, gb in enumerate(gigabytes)]


parts = st.floats(0, 90).map(lambda gb: round(gb, 1) * 1e9)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(*[parts] * 5), min_size=1, max_size=6),
    st.lists(st.sampled_from([16, 80, 180]), unique=True, max_size=2),
)
def test_lengths_are_bytes(rows, gigabytes):
    chips = of_memory(*gigabytes)
    root = inside(parse(bars_svg({f"row {i}": row for i, row in enumerate(rows)}, chips)))
    drawn, at = bars(root), lines(root)
    assert len(at) == len(chips)
    filled = [row for row in rows if sum(row) or chips]
    assert len(drawn) == len(filled)
    starts = [float(r.get("x")) for r in root.iter(f"{SVG}rect") if len(r)]
    if not starts:
        return
    left = min(starts)
    if chips:
        scale = (at[0] - left) / chips[0].memory
    else:
        scale = max(sum(bar.values()) for bar in drawn) / max(map(sum, rows))
    cut = len(root.findall(f"{SVG}path"))
    for row, bar in zip(filled, drawn, strict=True):
        room = bar.pop("left", 0.0)
        long = sum(bar.values())
        if chips and sum(row) < chips[0].memory:
            assert room == pytest.approx((chips[0].memory - sum(row)) * scale, abs=0.1)
        else:
            assert room == 0
        if long == pytest.approx(sum(row) * scale, abs=0.1):
            for part, nbytes in zip(Kept._fields, row, strict=True):
                assert bar.get(part, 0.0) == pytest.approx(nbytes * scale, abs=0.05)
        else:
            assert chips and long < sum(row) * scale and sum(row) > 2 * max(c.memory for c in chips)
            cut -= 1
    assert cut == 0


def test_a_bar_fits_beside_the_reserve():
    (chip,), rows = of_memory(80), {"a": (71e9, 0, 0, 0), "b": (73e9, 0, 0, 0)}
    root = inside(parse(bars_svg(rows, [chip], reserve=8e9)))
    full, limit = lines(root)
    assert "a: weights 71 GB, 71 GB in all; fits c0." in told(root)
    assert "73 GB in all; fits none." in told(root)
    first, second = bars(root)
    assert "left" in first and "left" not in second
    scale = first["weights"] / 71e9
    assert first["weights"] + first["left"] == pytest.approx(72e9 * scale, abs=0.1)
    assert full - limit == pytest.approx(8e9 * scale, abs=0.1)
    with pytest.raises(ValueError, match="reserve is -1"):
        bars_svg(rows, reserve=-1)


def test_what_is_far_too_long_does_not_hide_the_rest():
    chips = of_memory(80)
    root = inside(parse(bars_svg({"a": (4e12, 0, 0, 0), "b": (4e9, 0, 0, 0)}, chips)))
    (at,), (long, short) = lines(root), bars(root)
    assert at > 0.35 * long["weights"] and short["weights"] > 5


def test_totals_stand_behind_their_bars_and_across_no_line():
    chips = [CHIPS["h100"], CHIPS["h200"], CHIPS["b200"]]
    for d in (1, 16, 64, 500):
        root = inside(parse(stages_svg(SHAPES["llama2-70b"], d, chips, recompute="full")))
        totals = [text for text in root.iter(f"{SVG}text") if text.text.endswith(" GB")]
        behind = [text for text in totals if text.get("text-anchor") is None]
        assert len(behind) == 4
        for text in behind:
            start = float(text.get("x"))
            for line in lines(root):
                assert not start < line < start + 0.8 * measure(text.text)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_what_is_kept_is_what_the_formulas_say(name):
    shape, cuts = SHAPES[name], {"t": 2, "p": 2, "recompute": "selective"}
    for stage in STAGES:
        states = model_states(parameters(shape, 2, 2), 3, stage)
        row = kept(shape, 3, stage, microbatch=2, **cuts)
        assert row[:3] == (states.weights, states.gradients, states.optimizer)
        assert row.activations == activations(shape, 2, **cuts) and row.temporary == 0
        cuts_t = {"t": 2, "recompute": "selective"}
        row = kept(shape, 3, stage, microbatch=2, **cuts_t)
        assert row.temporary == passing(shape, 2, stage, reserve=0, **cuts_t).total > 0


def test_stages_and_devices_name_their_rows_and_say_who_fits():
    text = told(parse(stages_svg(MODEL, 64, [CHIPS["v100"]], recompute="full")))
    assert re.search(r"stage 0: .* 121 GB in all; fits none\.", text)
    # Without what comes and goes, stage 1 would have 31.9 GB.
    assert re.search(r"stage 1: .* 32.8 GB in all; fits none\.", text)
    assert re.search(r"stage 3: .*; fits v100\.", text)
    assert "v100 has 32 GB, of which 2.15 GB are kept in reserve." in text
    text = told(parse(stages_svg(MODEL, 64, recompute="full")))
    assert [f"stage {s}: " in text for s in range(4)] == [True] * 4 and "fits" not in text


def test_ways_of_keeping_activations():
    shape = SHAPES["gpt-22b"]
    root = inside(parse(activations_svg(shape, 4, 8, [CHIPS["a100-80"]])))
    least = [bar["activations"] for bar in bars(root)]
    ways = [(False, "none"), (True, "none"), (False, "selective"), (True, "selective")]
    exact = [activations(shape, 4, 8, sequence_parallel=s, recompute=r) for s, r in ways]
    exact.append(activations(shape, 4, 8, recompute="full"))
    assert [long / least[0] for long in least] == pytest.approx([n / exact[0] for n in exact], 0.01)
    assert "both: activations 10.3 GB" in told(root)


def test_units_suit_the_sizes():
    small = told(parse(bars_svg({"a": (1500, 0, 0, 0), "b": (20, 0, 0, 0)})))
    assert "weights 1.5 kB" in small and "weights 0.02 kB" in small
    assert "weights 3 GiB" in told(parse(bars_svg({"a": (3 * 2**30, 0, 0, 0)}, binary=True)))
    large = told(parse(bars_svg({"a": (1.6e13, 0, 0, 0)})))
    assert "weights 16,000 GB" in large


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bars_svg({}), "rows is empty"),
        (lambda: bars_svg({"a": (1, -2, 0, 0)}), "rows has -2 bytes in 'a'"),
        (lambda: bars_svg({"a": (1,) * 4}, of_memory(0)), "chips has c0, whose memory"),
        (lambda: stages_svg(MODEL, 0), "d is 0"),
        (lambda: kept(MODEL, 1, 4), "stage is 4"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# --- the slider -----------------------------------------------------------------------------------


def summary(html):
    last = html.partition("<p class='weft-summary'>")[2]
    return re.sub(r"<[^>]+>", "", last).replace("\u00a0", " ")


@pytest.mark.parametrize("model", sorted(SHAPES))
def test_the_slider_draws_every_model(model):
    for choices in ({}, {"d": 1, "t": 8}, {"d": 1024, "recompute": "none", "sequence": False}):
        html = explore.fits(model=model, **choices)
        if "There is no picture" not in html:
            inside(parse(re.search(r"<svg.*</svg>", html, re.S)[0]))
    assert "no picture" not in explore.fits(model=model)


@pytest.mark.parametrize("attention", ["naive", "flash"])
def test_the_slider_counts_scores_where_they_are_stored(attention):
    how = {"recompute": "full", "attention": attention}
    row = kept(SHAPES["llama2-70b"], 64, 3, **how)
    left = (CHIPS["h100"].memory - RESERVE - sum(row)) / 1e9
    text = summary(explore.fits(sequence=False, attention=attention))
    assert f"with {left:,.1f} GB left on each H100" in text


def test_the_slider_says_what_fits():
    text = summary(explore.fits(model="gpt-7.5b", chip="v100", d=64))
    assert text.startswith("On 64 devices it fits from stage 2 on") and "each V100" in text
    assert "reserve of 2 GiB for the CUDA context" in text
    assert "On 128 devices it fits from stage 3 on" in summary(explore.fits(t=2, d=64))
    assert "On 1 device no stage fits" in summary(explore.fits(model="gpt-1t", d=1))
    text = summary(explore.fits(model="llama2-7b", chip="h100", d=8))
    assert text.startswith("On 8 devices it fits from stage 1 on")  # stage 0 takes 108 GB
    few, many = (summary(explore.fits(model="gpt-22b", d=d, t=8)) for d in (1, 64))
    assert "On 8 devices" in few and "On 512 devices" in many


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"model": "x"}, "model is"),
        ({"chip": "x"}, "chip is"),
        ({"d": 0}, "d is 0, must be a whole number of at least 1"),
        ({"t": 128}, "t is 128, must divide"),
        ({"microbatch": 0}, "microbatch is 0"),
        ({"recompute": "half"}, "recompute is"),
    ],
)
def test_the_slider_says_why_there_is_nothing(choices, words):
    html = explore.fits(**choices)
    assert "There is no picture" in html and words in html
