"""The pictures of the chapter on linear attention: each cell, number and curve is the plan's."""

import re

import pytest
from pictures import apart, inside, parse, tips, told, words

from weft.draw import linear as draw
from weft.explore import linear as explore
from weft.plan import linear as plan
from weft.plan import roofline
from weft.plan.hardware import CHIPS
from weft.plan.units import quantity

PICTURES = {
    "forms": draw.forms_svg, "fading": lambda: draw.forms_svg(13, 5, 0.7),
    "regroup": draw.regroup_svg, "board": draw.board_svg, "solve": draw.solve_svg,
    "costs": draw.costs_svg, "kept": draw.kept_svg, "subchunks": draw.subchunks_svg,
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_stays_inside_its_edges_and_says_what_it_shows(name):
    root = inside(parse(PICTURES[name]()))
    assert len(told(root)) > 80
    assert PICTURES[name]() == PICTURES[name]()


@pytest.mark.parametrize(("T", "C"), [(11, 4), (13, 5), (6, 6), (4, 9), (3, 1)])
def test_cells_are_the_scores_that_each_form_computes(T, C):
    root = parse(draw.forms_svg(T, C, 0.5))
    cells = [(mark, re.match(r"query (\d+), key (\d+)", tip)) for mark, tip in tips(root)]
    pairs = [tuple(map(int, match.groups())) for _, match in cells if match]
    causal = [(i, j) for i in range(T) for j in range(i + 1)]
    near = [(i, j) for i, j in causal if i // C == j // C]
    assert sorted(pairs) == sorted(causal + near)
    for mark, match in cells:
        if match:
            i, j = map(int, match.groups())
            assert float(mark.get("fill-opacity")) == pytest.approx(
                0.12 + 0.88 * 0.5 ** (i - j), abs=0.01
            )
    states = [tip for _, tip in tips(root) if tip.startswith("queries")]
    assert len(states) == -(-T // C) - 1
    assert f"{len(near)} scores, {len(states)} states" in words(root)
    assert len([tip for _, tip in tips(root) if tip.startswith("the state after")]) == T


def test_a_decay_for_each_token_fades_all_before_it():
    decays = [0.5, 1.0, 0.25, 1.0]
    assert draw.fade(decays, 3, 0) == 0.25 and draw.fade(decays, 1, 0) == 1
    assert draw.fade(decays, 2, 2) == 1
    parse(draw.forms_svg(4, 2, decays))
    with pytest.raises(ValueError, match="decay has 4 numbers"):
        draw.forms_svg(5, 2, decays)
    with pytest.raises(ValueError, match="decay is 2"):
        draw.forms_svg(4, 2, 2.0)
    with pytest.raises(ValueError, match="T is 33"):
        draw.forms_svg(33)


@pytest.mark.parametrize(("C", "c"), [(64, 16), (48, 16), (8, 8)])
def test_sub_chunks_tile_the_triangle(C, c):
    root = parse(draw.subchunks_svg(C, c))
    found = [re.findall(r"\d+", tip) for _, tip in tips(root)]
    blocks = {(int(i) // c, int(j) // c): (int(a), int(b)) for i, a, j, b in found}
    assert set(blocks) == {(i, j) for i in range(C // c) for j in range(i + 1)}
    assert all((a + 1, b + 1) == (i * c + c, j * c + c) for (i, j), (a, b) in blocks.items())
    marks = {
        mark.get("fill")
        for mark, tip in tips(root)
        if tip == f"queries 0 to {c - 1}, keys 0 to {c - 1}"
    }
    diagonal = [mark for mark, _ in tips(root) if {mark.get("fill")} == marks]
    assert len(diagonal) == C // c
    with pytest.raises(ValueError, match="c is 24"):
        draw.subchunks_svg(64, 24)


def state_after(rule, writes, decay=1.0):
    """What a fresh state answers to a and b, by the rule as the chapter writes it."""
    S = [0.0, 0.0]
    for _, k, v in writes:
        S = [decay * s for s in S]
        u = v - sum(s * x for s, x in zip(S, k, strict=True)) if rule == "delta" else v
        S = [s + u * x for s, x in zip(S, k, strict=True)]
    return S


def test_the_board_shows_what_each_rule_answers():
    from weft.draw.linear.board import RULES, WRITES

    shown = words(parse(draw.board_svg()))
    answers = [word for word in shown if re.match(r"[prs]: ", word)]
    want = []
    for i in range(len(WRITES)):
        for _, rule, decay in RULES:
            p, r = state_after(rule, WRITES[: i + 1], decay)
            want += [f"p: {p:.4g}", f"r: {r:.4g}"]
            if i == len(WRITES) - 1:
                want += [f"s: {0.6 * p + 0.8 * r:.4g}"]
    assert want[-1] == "s: 3"  # the delta rule's last write is answered exactly
    assert answers == want
    assert plan.answers([k for _, k, _ in WRITES], [v for *_, v in WRITES], [(1.0, 0.0)], "delta")[
        2
    ] == (2.0,)


def test_the_solve_is_the_recurrence():
    from weft.draw.linear.solve import KEYS, VALUES

    writes = [("", k, v) for k, v in zip(KEYS, VALUES, strict=True)]
    before = [state_after("delta", writes[:i]) for i in range(len(writes))]
    new = [v - sum(s * x for s, x in zip(S, k, strict=True))
           for S, (_, k, v) in zip(before, writes, strict=True)]  # fmt: skip
    assert plan.written(KEYS, VALUES) == pytest.approx(new)
    shown = words(parse(draw.solve_svg()))
    assert all(f"{u:.3g}" in shown for u in new)


@pytest.mark.parametrize("chip", draw.CHIPS_SHOWN)
def test_curves_are_the_roofline(chip):
    root = apart(inside(parse(draw.costs_svg(4096, 64, 32, chip))))
    for name, seconds in draw.token_seconds(4096, 64, 32, chip).items():
        assert any(tip == f"{name}, 4k tokens: {quantity(seconds, 's')}" for _, tip in tips(root))
    flash = roofline.attention(4096, 4096, 1, 64, 2, "flash", causal=True)
    least = roofline.seconds(flash, CHIPS[chip], "bf16") / 4096
    assert draw.token_seconds(4096, 64, 32, chip)["FlashAttention"] == least
    with pytest.raises(ValueError, match="T is 5000"):
        draw.costs_svg(5000)


def test_the_slider_says_what_the_plan_says():
    said = explore.costs(T=2048, width=64, C=32, chip="a100-80")
    work = plan.work("chunked", 2048, 64, 64, 32)
    assert quantity(work.flops / 2048, "FLOP") in said and quantity(work.bytes / 2048, "B") in said
    assert f"{plan.break_even(64, 64, CHIPS['a100-80'], C=32):,.0f} tokens" in said
    assert "do not fit" in explore.costs(width=256, C=256)
    assert "There is no picture: chip is" in explore.costs(chip="abacus")


def test_what_is_kept_meets_where_the_plan_says():
    shown = tips(parse(draw.kept_svg(layers=4, every=4, H=8, G=2, K=16, cached=16)))
    tokens = plan.same_as_cache(8, 16, 16, G=2)
    assert tokens == 64
    ends = {tip for _, tip in shown if ", 64 tokens" in tip}
    kept = {tip.rpartition(": ")[2] for tip in ends}
    assert ends and len(kept) == 1  # all three keep as much there
