"""The search finds what trying every layout finds, and says why the others lose."""

import sys
from dataclasses import replace
from itertools import product

import pytest

from weft.plan import composing
from weft.plan.composing import CLUSTERS, Cluster, Layout, estimate, search, why
from weft.plan.composing.search import LEAST, divisors
from weft.plan.hardware import CHIPS, LINKS
from weft.plan.pipeline import SCHEDULES
from weft.plan.shape import SHAPES, Experts, ModelShape
from weft.plan.units import percent, quantity

POD = Cluster(
    chip=CHIPS["a100-40"], devices=8, node=4, inside=LINKS["nvlink3"], between=LINKS["ib-hdr"]
)
SMALL = ModelShape(layers=12, width=2304, heads=18, vocab=30000, seq=2048)


def every(shape, batch, cluster):
    """The fastest that fits of each cut, found by trying all fields of a Layout."""
    best = {}
    axes = divisors(cluster.devices)
    sizes = [1, 2, 4, 8, 16]
    for p, t, d, c in product(axes, repeat=4):
        if p * t * d * c != cluster.devices:
            continue
        for v, b, name, zero, sp, recompute in product(
            range(1, 13), sizes, SCHEDULES, range(4), (False, True), ("none", "selective", "full")
        ):
            if name == "gpipe" or (t == 1 and sp) or (p == 1 and (v, name) != (1, "one_f_one_b")):
                continue
            try:
                layout = Layout(p, t, d, c, 1, v, b, name, zero, sp, recompute)
                m = layout.microbatches(batch)
                if layout.v != v or m < LEAST.get(name, 0) * p:
                    continue
                if layout.schedule == "interleaved" and m % p:
                    continue
                cost = estimate(shape, layout, batch, cluster)
            except ValueError:
                continue
            if cost.fits and cost.seconds < best.get((p, t, d, c), (9e9,))[0]:
                best[p, t, d, c] = cost.seconds, layout
    return sorted(seconds for seconds, _ in best.values())


@pytest.mark.parametrize("batch", [16, 12])
def test_finds_what_trying_every_layout_finds(batch):
    want = every(SMALL, batch, POD)
    got = search(SMALL, batch, POD, keep=100)
    assert [cost.seconds for _, cost in got] == pytest.approx(want)
    assert len(want) > 5


def test_a_short_list_is_the_head_of_the_long_one():
    long = search(SMALL, 16, POD, keep=100)
    assert search(SMALL, 16, POD, keep=3) == long[:3]
    seconds = [cost.seconds for _, cost in long]
    assert seconds == sorted(seconds)
    assert all(cost.fits and layout.devices == 8 for layout, cost in long)
    assert len({(x.p, x.t, x.d, x.c, x.e) for x, _ in long}) == len(long)


@pytest.mark.parametrize(
    "fixed",
    [{"t": 2, "zero": 1}, {"schedule": "zb_h1", "p": 2}, {"recompute": "full"}, {"microbatch": 4},
     {"sequence_parallel": False, "v": 2}, {"schedule": "gpipe", "p": 4}],
)  # fmt: skip
def test_what_is_fixed_stays(fixed):
    found = search(SMALL, 16, POD, **fixed)
    assert found
    for layout, _ in found:
        kept = {name: getattr(layout, name) for name in fixed}
        assert kept == fixed


def test_only_what_fits_is_found():
    assert search(SHAPES["gpt3-175b"], 16, POD) == []
    need = min(cost.memory for _, cost in search(SMALL, 16, POD, keep=100))
    assert need <= POD.chip.memory


def test_experts_are_laid_over_the_ranks_of_a_stage():
    shape = replace(SMALL, experts=Experts(count=8, active=2, hidden=4096))
    found = search(shape, 16, POD, keep=20)
    assert any(layout.e > 1 for layout, _ in found)
    assert all(layout.d * layout.c % layout.e == 0 for layout, _ in found)


def test_few_of_the_candidates_of_many_devices_are_estimated(monkeypatch):
    done, count = [], [0]

    def counted(*given):
        count[0] += 1
        return estimate(*given)

    monkeypatch.setattr(sys.modules["weft.plan.composing.search"], "estimate", counted)
    found = search(
        SHAPES["gpt3-175b"], 1536, CLUSTERS["selene"].of(4096), keep=1,
        progress=lambda so_far, of: done.append((so_far, of)),
    )  # fmt: skip
    assert found
    assert count[0] < 2000
    assert done[-1][0] == done[-1][1] > 100
    assert [so_far for so_far, _ in done] == sorted(so_far for so_far, _ in done)


def test_a_sentence_says_what_the_slower_step_spends_more_on():
    shape, cluster = SHAPES["gpt3-175b"], CLUSTERS["selene"].of(1024)
    thin, thick = (
        estimate(shape, Layout(p=p, t=8, d=128 // p, recompute="full"), 128, cluster)
        for p in (4, 32)
    )
    faster, slower = sorted((thin, thick), key=lambda cost: cost.seconds)
    said = why(faster, slower)
    assert said.startswith(f"{percent(slower.seconds / faster.seconds - 1)} slower: ")
    most = max(slower.parts, key=lambda name: slower.parts[name] - faster.parts[name])
    assert f"{quantity(slower.parts[most] - faster.parts[most], 's')} more of {most}" in said
    assert why(faster, faster) == "as fast"


@pytest.mark.parametrize(
    ("given", "message"),
    [({"batch": 0}, "batch is 0"), ({"keep": 0}, "keep is 0"), ({"t": 5}, "no layout divides"),
     ({"zero": 4}, "zero is 4"), ({"axis": 2}, "axis"), ({"dtype": "int3"}, "int3")],
)  # fmt: skip
def test_wrong_arguments_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        search(**({"shape": SMALL, "batch": 16, "cluster": POD} | given))


def test_the_front_door_has_it():
    assert composing.search is search
