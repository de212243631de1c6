"""The papers' tables that a calculator of memory has to give, and what must hold of any model:
shares that add up, stages that never need more, activations that a simulation agrees with."""

from dataclasses import astuple, replace
from itertools import product
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.plan.decode.cache import bytes_per_token
from weft.plan.memory.activation import activations, of_layer
from weft.plan.memory.config import of_deepspeed, places
from weft.plan.memory.deepspeed import deepspeed_zero2, deepspeed_zero3
from weft.plan.memory.partition import of_layers, parameters
from weft.plan.memory.passing import passing
from weft.plan.memory.states import STAGES, kv_cache, model_states
from weft.plan.memory.zero_infinity import MODELS, bandwidth_for, efficiency, infinity
from weft.plan.pipeline.schedules import interleaved, one_f_one_b
from weft.plan.precision.state import RECIPES
from weft.plan.shape.config import of_config
from weft.plan.shape.model import SHAPES, ModelShape
from weft.plan.shape.parts import Experts, Latent
from weft.plan.simulate.engine import simulate

GB, GIB, TIB = 10**9, 2**30, 2**40

# --- model states ---------------------------------------------------------------------------------

TABLE_1 = {  # Rajbhandari et al. 2020: d -> GB under stages 1, 2, 3, for each of the models
    1: (120, 120, 120, 2048, 2048, 2048, 16000, 16000, 16000),
    4: (52.5, 41.3, 30, 896, 704, 512, 7000, 5500, 4000),
    16: (35.6, 21.6, 7.5, 608, 368, 128, 4750, 2875, 1000),
    64: (31.4, 16.6, 1.88, 536, 284, 32, 4187, 2218, 250),
    256: (30.4, 15.4, 0.47, 518, 263, 8, 4046, 2054, 62.5),
    1024: (30.1, 15.1, 0.12, 513, 257, 2, 4011, 2013, 15.6),
}
CELLS = [
    (params, d, stage, printed)
    for d, row in TABLE_1.items()
    for (params, stage), printed in zip(
        [(params, stage) for params in (7.5e9, 128e9, 1e12) for stage in (1, 2, 3)],
        row,
        strict=True,
    )
]


def test_all_cells_of_table_1_are_here():
    assert len(CELLS) == 54


@pytest.mark.parametrize(("params", "d", "stage", "printed"), CELLS)
def test_table_1_of_zero(params, d, stage, printed):
    """The paper rounds the small model's cells and cuts off the large ones' fractions."""
    gigabytes = model_states(params, d, stage).total / GB
    if params == 7.5e9:
        digits = 2 if printed < 2 else 1
        assert abs(gigabytes - printed) <= 0.5001 * 10**-digits
    else:
        assert floor(gigabytes) == floor(printed) and gigabytes - printed < 1


@pytest.mark.parametrize(
    ("params", "d", "stage", "exact"),
    [
        (128e9, 1024, 1, 513.5),
        (128e9, 1024, 2, 257.75),
        (1e12, 64, 1, 4187.5),
        (1e12, 64, 2, 2218.75),
        (1e12, 256, 1, 4046.875),
        (1e12, 256, 2, 2054.6875),
        (1e12, 1024, 1, 4011.71875),
        (1e12, 1024, 2, 2013.671875),
        (1e12, 1024, 3, 15.625),
    ],
)
def test_what_table_1_cuts_off(params, d, stage, exact):
    assert model_states(params, d, stage).total == exact * GB


def test_figure_1_of_zero():
    totals = [model_states(7_500_000_000, 64, stage).total / GB for stage in STAGES]
    assert [round(total, 1) for total in totals] == [120, 31.4, 16.6, 1.9]


@pytest.mark.parametrize("parallel", [1, 2, 4, 8, 16])
def test_table_2_of_zero(parallel):
    """The largest model on 32 GB, d = 64: what a parameter keeps divides them. The paper
    multiplies what it has rounded for one device, so the last digits differ."""
    each = [model_states(10**9, 64, stage).total / 10**9 for stage in STAGES]
    largest = [32 * parallel / nbytes for nbytes in each]
    assert largest == pytest.approx([parallel * b for b in (2, 7.6, 14.4, 128)], rel=0.01)


@given(
    params=st.integers(1, 10**12),
    d=st.integers(1, 4096),
    recipe=st.sampled_from(sorted(RECIPES)),
)
def test_what_a_stage_deals_out_adds_up_over_the_devices(params, d, recipe):
    every = [model_states(params, d, stage, recipe) for stage in STAGES]
    whole = astuple(every[0])
    assert sum(whole) == every[0].total == RECIPES[recipe].kept * params
    for stage, states in zip(STAGES, every, strict=True):
        dealt = {"weights": 3, "gradients": 2, "optimizer": 1}
        for name, total in zip(dealt, whole, strict=True):
            devices = d if stage >= dealt[name] else 1
            assert getattr(states, name) * devices == pytest.approx(total)
    totals = [states.total for states in every]
    assert totals == sorted(totals, reverse=True)
    assert (len(set(totals)) == 1) == (d == 1)
    assert model_states(params, d + 1, 1, recipe).total < model_states(params, d, 1, recipe).total


def test_the_limits_of_the_stages():
    for stage, times in ((1, 4), (2, 8), (3, 10**6)):
        saved = 16e9 / model_states(1e9, 10**6, stage).total
        assert saved == pytest.approx(times, rel=1e-4)


# --- activations ----------------------------------------------------------------------------------

SETTINGS = {  # Korthikanti et al. 2022, table 3: microbatch, t, p, m, v
    "gpt-22b": (4, 8, 1, 1, 1),
    "gpt3-175b": (1, 8, 8, 64, 3),
    "mt-nlg-530b": (1, 8, 35, 280, 3),
    "gpt-1t": (1, 8, 64, 512, 1),
}
BOTH = {"sequence_parallel": True, "recompute": "selective"}


@pytest.mark.parametrize(
    ("name", "states", "tensor", "both"),
    [
        ("gpt-22b", 45.5625, 59.25, 9.5625),
        ("gpt3-175b", 45.5625, 66.84375, 12.3515625),
    ],
)
def test_figure_1_of_korthikanti_to_the_binary_fraction(name, states, tensor, both):
    shape, (microbatch, t, p, m, v) = SHAPES[name], SETTINGS[name]
    assert activations(shape, microbatch, t, p, m, v) == tensor * GIB
    assert activations(shape, microbatch, t, p, m, v, **BOTH) == both * GIB
    matrices = 12 * shape.layers * shape.width**2 // (t * p)
    assert model_states(matrices, 1, 0, "mixed, fp32 gradients").total == states * GIB


@pytest.mark.parametrize(
    ("name", "sequence", "selective", "both", "full"),
    [
        ("gpt-22b", 66.84, 49.42, 16.18, 7.64),
        ("gpt3-175b", 62.04, 56.53, 18.49, 8.71),
        ("mt-nlg-530b", 58.31, 62.04, 20.27, 9.42),
        ("gpt-1t", 58.31, 62.04, 20.27, 9.42),
    ],
)
def test_figure_7_of_korthikanti(name, sequence, selective, both, full):
    """Percent of what tensor parallelism alone keeps, to 0.15 points: without embeddings."""
    shape, (microbatch, *cuts) = SHAPES[name], SETTINGS[name]
    whole = activations(shape, microbatch, *cuts)
    for printed, how in (
        (sequence, {"sequence_parallel": True}),
        (selective, {"recompute": "selective"}),
        (both, BOTH),
        (full, {"recompute": "full"}),
    ):
        percent = 100 * activations(shape, microbatch, *cuts, **how) / whole
        assert percent == pytest.approx(printed, abs=0.15)


@settings(max_examples=60)
@given(
    heads=st.integers(1, 6),
    key=st.integers(1, 9),
    t=st.sampled_from([1, 2, 3, 5]),
    batch=st.integers(1, 5),
    tokens=st.integers(1, 9),
)
def test_korthikanti_formulas_of_a_layer(heads, key, t, batch, tokens):
    a, h, s = heads * t, heads * t * key, tokens * t
    shape, sbh = ModelShape(3, h, a, vocab=11, seq=s), s * batch * h
    scores = 5 * a * s / h
    for sequence_parallel, recompute, factor in (
        (False, "none", 10 + 24 / t + scores / t),
        (True, "none", (34 + scores) / t),
        (False, "selective", 10 + 24 / t),
        (True, "selective", 34 / t),
        (False, "full", 2),
        (True, "full", 2 / t),
    ):
        kept = of_layer(shape, batch, t, sequence_parallel, recompute)
        assert kept == pytest.approx(sbh * factor, rel=1e-12)
        assert activations(
            shape, batch, t, sequence_parallel=sequence_parallel, recompute=recompute
        ) == (3 * kept)


def test_the_tensors_of_a_llama_are_counted_one_by_one():
    """B = 3, T = 10: norms' inputs, matrices' inputs, q, k, v, gate, up and their product."""
    shape = replace(SHAPES["llama2-70b"], seq=10)
    D, GK, F = 8192, 1024, 28672
    numbers = [D, D, D, D, D, GK, GK, D, F, F, F]
    masks = [D, D]
    each_token = 2 * sum(numbers) + sum(masks)
    assert of_layer(shape, 3, recompute="selective") == 30 * each_token
    assert of_layer(shape, 3) == 30 * each_token + 5 * 3 * 64 * 10 * 10
    assert of_layer(shape, 3, t=16, recompute="selective") == 30 * (
        10 * D + 2 * (D + D + 3 * F) // 16 + 2 * 2 * 128  # a kv head for each two devices, twice
    )


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("m", [1, 2, 4, 11])
def test_1f1b_keeps_what_its_simulation_keeps_alive(p, m):
    shape = ModelShape(30, 12, 3, vocab=20, seq=7)
    live = max(simulate(one_f_one_b(p, m)).peak_live)
    assert activations(shape, 2, p=p, m=m) == live * (30 // p) * of_layer(shape, 2)


@pytest.mark.parametrize("p", [2, 3, 5])
@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("v", [2, 3])
def test_interleaving_keeps_what_its_simulation_keeps_alive(p, rounds, v):
    shape = ModelShape(180, 12, 3, vocab=20, seq=7)
    live = max(simulate(interleaved(p, rounds * p, v)).peak_live)
    kept = activations(shape, 2, p=p, m=rounds * p, v=v)
    assert kept == live * (180 // (p * v)) * of_layer(shape, 2)


def test_what_zero_says_of_checkpoints():
    """100 B parameters: 60 GB for 32 sequences; with 16 devices for each model, 33 GB become 2."""
    shape = ModelShape(125, 8192, 64, vocab=50257, seq=1024)
    assert activations(shape, 32, recompute="full") == 2 * 8192 * 32 * 1024 * 125
    assert infinity(shape, 32).checkpoints == activations(shape, 32, recompute="full")
    whole = activations(shape, 16, t=16, recompute="full")
    cut = activations(shape, 16, t=16, sequence_parallel=True, recompute="full")
    assert (round(whole / GB), round(cut / GB)) == (34, 2) and whole == 16 * cut


def test_the_pipeline_cancels_out_once_there_are_enough_microbatches():
    shape = SHAPES["gpt-1t"]
    assert activations(shape, 1, t=8, p=64, m=64) == activations(shape, 1, t=8)
    assert activations(shape, 1, t=8, p=64, m=63) < activations(shape, 1, t=8)
    assert activations(shape, 1, p=3, m=9) == 3 * 43 * of_layer(shape, 1)  # 43 + 43 + 42 layers


# --- parameters on a device -----------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_one_device_holds_all_parameters(name):
    assert parameters(SHAPES[name]) == SHAPES[name].params


@pytest.mark.parametrize("t", [1, 2, 4])
def test_the_shares_of_t_devices_are_the_model_and_what_lies_on_each(t):
    shape = ModelShape(5, 24, 4, vocab=40, seq=9, norms=1)
    on_each = 5 * (2 * 24 + 2 * 48) + 9 * 24 + 48  # biases of out and down, norms, positions
    assert t * parameters(shape, t=t) == shape.params + (t - 1) * on_each


def test_a_kv_head_that_all_share_is_on_every_device():
    shape = ModelShape(1, 24, 4, 40, 9, kv_heads=1, bias=False, positions=0)
    keys_and_values, norms = 2 * 24 * 6, 2 * 24
    assert 4 * parameters(shape, t=4) == shape.params + 3 * (keys_and_values + norms)


def test_the_fullest_stage():
    shape = ModelShape(6, 24, 4, vocab=40, seq=9, norms=1)
    layer, table = shape.layer_params, 40 * 24
    assert parameters(shape, p=2) == 3 * layer + table + 9 * 24  # the first has the positions
    assert parameters(shape, p=4) == 2 * layer + table + 9 * 24
    rotary = replace(shape, positions=0)
    assert parameters(rotary, p=2) == 3 * layer + table + 48  # the last has the norm
    assert parameters(rotary, p=4) == 2 * layer + table
    untied = replace(rotary, tied=False)
    assert parameters(untied, p=2) == parameters(rotary, p=2)
    assert parameters(untied) == parameters(rotary) + table
    assert parameters(replace(shape, vocab=41), t=4, p=6) == parameters(
        replace(shape, vocab=44), t=4, p=6
    )


def test_layers_alone_are_the_share_that_the_paper_counts():
    shape = SHAPES["gpt3-175b"]
    bare = 12 * shape.layers * shape.width**2 / 64
    edge = (51200 / 8 + 2048) * 12288
    assert parameters(shape, t=8, p=8) == pytest.approx(bare + edge, rel=1e-3)


# --- experts, latent attention, and what some models have beside ----------------------------------

EXPERTS = Experts(count=8, active=2, hidden=24, shared=40, shared_gate=True, layers=4)
LEAN = {"gated": True, "bias": False, "tied": False, "positions": 0, "norms": 1}
SPARSE = ModelShape(6, 48, 4, 100, 10, 2, 80, **LEAN, experts=EXPERTS)
LATENT = Latent(key_value=20, rope=6, value=10, query=14)
NARROW = ModelShape(6, 48, 4, 100, 10, hidden=80, **LEAN, head=16, latent=LATENT)


def test_experts_are_cut_and_routers_are_not():
    norms, routers = 6 * 2 * 48 + 48, 4 * (48 * 8 + 48)
    assert 2 * parameters(SPARSE, t=2) == SPARSE.params + norms + routers
    small, large = (kind.layer_params for kind in SPARSE.kinds)
    assert parameters(SPARSE) == SPARSE.params
    assert parameters(SPARSE, p=3) == 2 * large + 100 * 48 + 48
    assert parameters(SPARSE, p=2) == 3 * large + 100 * 48 + 48
    assert small < large and 2 * small + 4 * large + 2 * 4800 + 48 == SPARSE.params


def test_what_makes_latent_attention_narrow_is_on_every_device():
    whole = 6 * (48 * 14 + 48 * 26 + 14 + 20 + 2 * 48) + 48
    assert 4 * parameters(NARROW, t=4) == NARROW.params + 3 * whole


def test_sinks_biases_and_a_narrow_table_are_cut_as_their_matrices():
    shape = ModelShape(5, 24, 4, 40, 9, bias=False, biased=("qkv", "out"), sinks=True, positions=0)
    assert 2 * parameters(shape, t=2) == shape.params + 5 * (24 + 2 * 24)  # out's bias and norms
    table = ModelShape(4, 24, 4, 40, 9, embedding=10, positions=0)
    assert parameters(table, p=4) == table.layer_params + 40 * 10 + 2 * 24 * 10


def test_the_tensors_of_experts_are_counted_one_by_one():
    """A token goes to two experts of 24 and the shared one of 40; eight scores in fp32."""
    dense, sparse = (of_layer(kind, 3, recompute="selective") for kind in SPARSE.kinds)
    attention, around = [48, 24, 24, 48], [48, 48, 48, 48]
    assert dense == 30 * (2 * sum([*attention, *around, 80, 80, 80]) + 2 * 48)
    hidden, copies = 3 * [2 * 24 + 40], [2 * 48, 2 * 48]
    assert sparse == 30 * (2 * sum([*attention, *around, *hidden, *copies]) + 2 * 48 + 4 * 8)
    assert activations(SPARSE, 3, recompute="selective") == 2 * dense + 4 * sparse
    assert activations(SPARSE, 3, p=3, m=3, recompute="selective") == 3 * 2 * sparse


def test_the_tensors_of_latent_attention_are_counted_one_by_one():
    """Queries and keys of 16, values of 10, from vectors of 14 and 20, before norms and after."""
    numbers = [48, 48, 48, 48, 14, 14, 20, 20, 6, 64, 64, 40, 40, 80, 80, 80]
    assert of_layer(NARROW, 3, recompute="selective") == 30 * (2 * sum(numbers) + 2 * 48)
    assert kv_cache(NARROW, 7) == 7 * 6 * (20 + 6) * 2


def test_flash_attention_keeps_a_number_for_each_row_of_scores():
    shape = SHAPES["gpt-22b"]
    without = of_layer(shape, 4, t=8, recompute="selective")
    assert of_layer(shape, 4, t=8, attention="flash") == without + 4 * 2048 * 4 * 64 // 8
    assert of_layer(shape, 4, recompute="full", attention="flash") == of_layer(
        shape, 4, recompute="full"
    )


def test_further_norms_keep_what_they_take_in():
    shape = ModelShape(1, 24, 4, 40, 9, kv_heads=2)
    token = of_layer(shape, 1) // 9
    assert of_layer(replace(shape, layer_norms=4), 1) == 9 * (token + 2 * 2 * 24)
    assert of_layer(replace(shape, head_norms=True), 1) == 9 * (token + 2 * (24 + 12))
    assert of_layer(replace(shape, layer_norms=1), 1) == 9 * (token - 2 * 2 * 24)


# --- the KV cache ---------------------------------------------------------------------------------


def test_the_cache_is_so_many_tokens():
    shape = SHAPES["opt-13b"]
    assert kv_cache(shape, 2048) == 2048 * 819200
    assert kv_cache(shape, np.int64(7), size=1) == 7 * bytes_per_token(shape, 1)
    assert kv_cache(shape, 0) == 0


# --- DeepSpeed's estimators -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "cpu", "gpu"),
    [
        ((2851e6, 8, 1, True), 127.45, 5.31),
        ((2851e6, 8, 1, False), 127.45, 11.28),  # DeepSpeed's page has 15.93: its older formula
        ((7.5e9, 8, 8, True), 2682.21, 13.97),
        ((7.5e9, 8, 8, False), 335.28, 15.93),
        ((175e9, 8, 16, True), 125169.75, 325.96),
        ((175e9, 8, 16, False), 7823.11, 348.88),
    ],
)
def test_zero2_as_deepspeed_prints_it(arguments, cpu, gpu):
    assert [round(n / GIB, 2) for n in deepspeed_zero2(*arguments)] == [cpu, gpu]


def test_zero2_of_deepspeed_to_the_byte():
    assert deepspeed_zero2(2_851_000_000, 8, 1, True) == (136_848_000_000, 5_702_000_000)
    assert deepspeed_zero2(2_851_000_000, 8, 1, False)[1] == 12_116_750_000


ZERO3 = {  # params, largest layer, GPUs, nodes -> GiB of host and GPU by what is offloaded
    (2851e6, 32e6, 8, 1): (71.69, 127.45, 0.12, 63.72, 127.45, 0.78, 1.43, 127.45, 6.09),
    (7.5e9, 2e8, 8, 8): (23.57, 335.28, 0.75, 20.95, 335.28, 0.96, 8.94, 335.28, 2.71),
    (175e9, 1.812e9, 8, 16): (275.03, 7823.11, 6.75, 244.47, 7823.11, 9.30, 81.00, 7823.11, 29.67),
}


@pytest.mark.parametrize("model", ZERO3)
def test_zero3_as_deepspeed_prints_it(model):
    shown = []
    for offload in ((True, True), (True, False), (False, False)):
        early, late = (deepspeed_zero3(*model, *offload, zero_init) for zero_init in (True, False))
        assert early[1] == late[1]
        shown += [round(n / GIB, 2) for n in (*early, late[0])]
    expected = ZERO3[model]
    in_order = [expected[i + j] for i in (0, 3, 6) for j in (0, 2, 1)]
    assert shown == in_order


def test_t5_large_of_deepspeeds_page():
    model = (737.67e6, 32.90e6, 4, 1)
    gpus = [deepspeed_zero3(*model, *o)[1] for o in ((True, True), (True, False), (False, False))]
    assert [gpu >> 20 for gpu in gpus] == [125, 477, 3291]


def test_parameters_stay_where_the_optimizer_does():
    assert deepspeed_zero3(1e9, 1e7, 8, 2, False, True) == deepspeed_zero3(
        1e9, 1e7, 8, 2, False, False
    )


# --- ZeRO-Infinity --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "states", "full", "checkpoints", "model_working", "activation_working"),
    [
        ("0.10T", 1.83, 2.03, 0.05, 1.5625, 1.63),  # 4 D x 4 D bytes, whatever is printed
        ("0.50T", 9.16, 3.91, 0.12, 6.25, 2.50),
        ("1.01T", 18.31, 7.13, 0.20, 9.77, 3.56),
        ("10.05T", 182.81, 24.38, 0.76, 64.00, 8.00),
        ("101.47T", 1845.70, 88.59, 3.08, 400.00, 18.00),
    ],
)
def test_figure_2a_of_infinity(name, states, full, checkpoints, model_working, activation_working):
    """The columns hold for different batches: 64 for a node's activations, 32 for its
    checkpoints, 4 for one device."""
    shape = MODELS[name]
    device, node = infinity(shape, 4), infinity(shape, 32)
    cents = {"abs": 0.0051, "rel": 0.0}
    assert node.params / 1e12 == pytest.approx(float(name[:-1]), **cents)
    assert node.model_states / TIB == pytest.approx(states, **cents)
    assert infinity(shape, 64).activations / TIB == pytest.approx(full, **cents)
    assert node.checkpoints / TIB == pytest.approx(checkpoints, **cents)
    assert device.model_working / GIB == pytest.approx(model_working, **cents)
    assert device.activation_working / GIB == pytest.approx(activation_working, **cents)


@pytest.mark.parametrize("name", ["0.10T", "101.47T"])
@pytest.mark.parametrize(("batch", "interval"), [(1, 1), (3, 2), (32, 5)])
def test_the_intensities_of_infinity(name, batch, interval):
    shape = MODELS[name]
    found = infinity(shape, batch, interval).intensities
    assert found["weights"] == 1024 * batch
    assert found["optimizer"] == 1024 * batch / 4
    assert found["activations"] == pytest.approx(24 * shape.width * interval)


def test_fewer_checkpoints_leave_more_to_work_on():
    one, five = infinity(MODELS["1.01T"], 2, 1), infinity(MODELS["1.01T"], 2, 5)
    assert five.checkpoints * 5 == pytest.approx(one.checkpoints)
    assert five.activation_working == 5 * one.activation_working
    assert five.model_states == one.model_states == 240 * 128 * 25600**2


@pytest.mark.parametrize(
    ("intensity", "bandwidth", "share"),
    [
        (1024, 70e9, 0.5059),  # weights and gradients, one sequence of 1024
        (1024 / 4, 273e9, 0.50),  # the optimizer needs four times as much
        (2 * 1024 / 4, 1.5e12, 0.9165),
        (24 * 2048, 2e9, 0.584),  # checkpoints of a width of 2048
        (24 * 8192, 1e9, 0.737),
    ],
)
def test_what_infinity_says_of_bandwidth(intensity, bandwidth, share):
    found = efficiency(intensity, bandwidth, peak=70e12)
    assert found == pytest.approx(share, abs=6e-4)
    assert bandwidth_for(intensity, found, 70e12) == pytest.approx(bandwidth)


@pytest.mark.parametrize(("times", "slow", "gpu"), [(1, 3, 70), (10, 30, 700), (100, 300, 7000)])
def test_table_3_of_infinity(times, slow, gpu):
    """GB/s for one of 512 devices: the optimizer at 0.9165, shared out, and weights at half."""
    peak, ways = 70e12 * times, MODELS["1.01T"]
    two, one = (infinity(ways, batch).intensities for batch in (2, 1))
    together = bandwidth_for(two["optimizer"], 0.9165, peak)
    assert together / 512 / GB == pytest.approx(slow, rel=0.03)
    assert bandwidth_for(one["weights"], 0.5, peak) / GB == pytest.approx(gpu, rel=0.03)


@given(
    a=st.floats(1e-3, 1e9), b=st.floats(1e-3, 1e15), peak=st.floats(1, 1e18), more=st.floats(1, 9)
)
def test_efficiency_is_a_share_that_bandwidth_raises(a, b, peak, more):
    share = efficiency(a, b, peak)
    assert 0 < share <= 1
    assert efficiency(a, more * b, peak) >= share
    assert efficiency(a, b, more * peak) <= share
    assert efficiency(a * more, b, peak) == pytest.approx(efficiency(a, b * more, peak))


# --- a config.json --------------------------------------------------------------------------------

GPT2 = {
    "model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257,
    "n_positions": 1024, "n_inner": None, "torch_dtype": "float32",
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "attention_bias": False,
    "head_dim": 128,
}  # fmt: skip


def test_the_config_of_models_that_there_are():
    assert of_config(LLAMA) == SHAPES["llama3-8b"]
    assert of_config(GPT2).params == 124_439_808
    assert of_config(GPT2 | {"n_inner": 100}).ffn == 100


def test_what_a_config_may_leave_out():
    lean = {key: value for key, value in LLAMA.items() if key not in ("model_type", "head_dim")}
    del lean["num_key_value_heads"], lean["tie_word_embeddings"], lean["attention_bias"]
    lean["architectures"] = ["LlamaForCausalLM"]
    assert of_config(lean) == replace(SHAPES["llama3-8b"], kv_heads=None)
    mistral = LLAMA | {"model_type": "mistral", "sliding_window": None}
    assert of_config(mistral) == SHAPES["llama3-8b"]
    del mistral["sliding_window"], mistral["num_key_value_heads"]
    windows = {"window": 4096, "windowed": 32, "kv_heads": 8}
    assert of_config(mistral) == replace(SHAPES["llama3-8b"], **windows)
    assert not of_config(GPT2 | {"tie_word_embeddings": False}).tied
    assert of_config(LLAMA | {"tie_word_embeddings": True}).tied


# --- a ds_config.json -----------------------------------------------------------------------------


def zero(stage, **more):
    """A file with a stage, 16 bits, and what else is given in its block."""
    return {"fp16": {"enabled": True}, "zero_optimization": {"stage": stage} | more}


@pytest.mark.parametrize("stage", STAGES)
def test_without_offloading_all_of_a_stage_is_on_the_gpu(stage):
    found = places(of_deepspeed(zero(stage)), 10**9, 7)
    assert found == {"gpu": model_states(10**9, 7, stage)}


@pytest.mark.parametrize(
    ("stage", "optimizer"),
    [*product([1, 2, 3], ["none", "cpu"]), (3, "nvme")],
)
@pytest.mark.parametrize("weights", ["none", "cpu", "nvme"])
def test_offloading_moves_states_and_loses_none(stage, optimizer, weights):
    block = {"offload_optimizer": {"device": optimizer}}
    if stage == 3:
        block["offload_param"] = {"device": weights}
    states = model_states(10**9, 7, stage)
    found = places(of_deepspeed(zero(stage, **block)), 10**9, 7)
    at = {"none": "gpu", "cpu": "cpu", "nvme": "nvme"}
    for name, device in (
        ("weights", weights if stage == 3 else "none"),
        ("gradients", optimizer if stage >= 2 else "none"),
        ("optimizer", optimizer),
    ):
        lying = {place: getattr(part, name) for place, part in found.items()}
        assert lying.pop(at[device]) == getattr(states, name)
        assert not any(lying.values())
    assert "gpu" in found and all(part.total for place, part in found.items() if place != "gpu")


def test_zero_offload_keeps_two_bytes_on_the_gpu():
    """Ren et al. 2021: 2 M bytes on the GPU instead of 16 M, and the other 14 M on the host."""
    found = places(of_deepspeed(zero(2, offload_optimizer={"device": "cpu"})), 10**9, 1)
    assert {place: part.total for place, part in found.items()} == {"gpu": 2e9, "cpu": 14e9}


@pytest.mark.parametrize(
    ("blocks", "recipe"),
    [
        ({}, "fp32"),
        ({"fp16": {"enabled": False}, "bf16": {}}, "fp32"),
        ({"bf16": {"enabled": True}}, "mixed"),
        ({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}, "mixed"),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": "auto"}}, "mixed"),
        (
            {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}},
            "mixed, fp32 gradients",
        ),
        ({"fp16": {"enabled": True}, "data_types": {"grad_accum_dtype": None}}, "mixed"),
        ({"fp16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp16"}}, "mixed"),
    ],
)
def test_the_formats_of_a_file(blocks, recipe):
    settings = of_deepspeed(blocks)
    assert (settings.recipe, settings.stage, settings.microbatch) == (recipe, 0, None)
    assert places(settings, 5, 9)["gpu"].total == 5 * RECIPES[recipe].kept


def test_every_key_is_read_or_named():
    file = zero(3, overlap_comm=True, offload_param={"device": "cpu", "pin_memory": True})
    file |= {"train_micro_batch_size_per_gpu": 3, "gradient_clipping": 1.0}
    settings = of_deepspeed(file)
    assert settings.microbatch == 3
    assert [key for key, *_ in settings.said] == [
        "zero_optimization.stage",
        "zero_optimization.offload_param.device",
        "fp16.enabled",
        "train_micro_batch_size_per_gpu",
    ]
    assert settings.silent == ("gradient_clipping", "zero_optimization.overlap_comm")
    assert len(settings.lines) == 5
    assert of_deepspeed({"train_micro_batch_size_per_gpu": "auto"}).microbatch is None


def test_what_is_left_to_the_trainer_is_said():
    settings = of_deepspeed({"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"})
    assert settings.recipe == "mixed" and settings.microbatch is None
    assert [line.endswith("auto is for Hugging Face's Trainer to fill in") for line in
            settings.lines] == [False, True, True]  # fmt: skip


def test_weights_that_stay_on_the_host_beside_nvme():
    block = {"device": "nvme", "max_in_cpu": 3e7}
    found = places(of_deepspeed(zero(3, offload_param=block)), 10**9, 10)
    assert found["cpu"].weights == 6e7 and found["nvme"].weights == 2e8 - 6e7
    assert list(found) == ["gpu", "cpu", "nvme"]
    few = places(of_deepspeed(zero(3, offload_param=block | {"max_in_cpu": 1e9})), 10**9, 10)
    assert few["cpu"].weights == 2e8 and few["nvme"].weights == 0
    none = of_deepspeed(zero(3, offload_param=block | {"max_in_cpu": 0}))
    assert none.in_cpu == 0 and none.silent == ()
    unsaid = of_deepspeed(zero(3, offload_param={"device": "nvme"}))
    assert any("1e9 elements of each GPU on the host" in line for line in unsaid.lines)


def test_how_many_parameters_are_live_at_most():
    assert of_deepspeed(zero(2)).live is None and of_deepspeed(zero(3)).live == 10**9
    settings = of_deepspeed(zero(3, stage3_max_live_parameters=3e8))
    assert settings.live == 3 * 10**8 and settings.silent == ()
    assert of_deepspeed(zero(3, stage3_max_live_parameters="auto")).live == 10**9


@pytest.mark.parametrize(
    ("micro", "times", "batch", "microbatch"),
    [(4, 2, 64, 4), (None, 2, 64, 4), (None, None, 64, 8), (4, None, 64, 4), (4, 2, None, 4)],
)
def test_a_microbatch_follows_from_the_batch(micro, times, batch, microbatch):
    sizes = {
        "train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": times,
        "train_batch_size": batch,
    }  # fmt: skip
    given = {key: size for key, size in sizes.items() if size}
    assert of_deepspeed(given, d=8).microbatch == microbatch
    assert of_deepspeed(given).microbatch == micro
    assert of_deepspeed(given, d=8).silent == ()


# --- what passes ----------------------------------------------------------------------------------

MODEL = ModelShape(6, 24, 4, vocab=4000, seq=10, positions=0, norms=1)


def test_what_passes_under_each_stage():
    table, layer = 4000 * 24, MODEL.layer_params
    assert table > layer
    logits = 8 * 3 * 10 * 4000
    for stage, gathered, reduced in (
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, table + layer),
        (3, table + layer, table + layer),
    ):
        found = passing(MODEL, 3, stage, reserve=7)
        assert astuple(found) == (2 * gathered, 2 * reduced, 0, logits, 7)
        assert found.total == 7 + 2 * gathered + max(logits, 2 * reduced)  # at the loss, or later
    small = replace(MODEL, vocab=40)
    found = passing(small, 3, 3, recompute="full", reserve=0)
    assert found.total == found.gathered + found.reduced + found.recomputed
    assert found.reduced + found.recomputed > found.logits > 0
    assert passing(small, 3, 3).gathered == passing(small, 3, 2).reduced == 4 * layer
    assert passing(MODEL, 3, 2, t=4).reduced == 2 * (table // 4 + of_layers(MODEL, 4))
    one = replace(MODEL, layers=1, vocab=1)
    assert passing(one, 3, 2).reduced == passing(one, 3, 3).gathered == 2 * one.params
    assert passing(MODEL, 3, 3, live=10**4).gathered == 2 * table  # no less than a piece
    assert passing(MODEL, 3, 3, live=10**5).gathered == 2 * 10**5
    assert passing(MODEL, 3, 3, live=10**9).gathered == 2 * MODEL.params


def test_a_layer_that_is_recomputed_is_kept_for_a_moment():
    shape, how = SHAPES["gpt-22b"], {"t": 8, "attention": "naive"}
    for recompute in ("selective", "full"):
        again = of_layer(shape, 4, t=8) - of_layer(shape, 4, t=8, recompute=recompute)
        assert passing(shape, 4, 1, recompute=recompute, **how).recomputed == again > 0
    assert passing(SPARSE, 1, 1, recompute="full").recomputed == max(
        of_layer(kind, 1) - of_layer(kind, 1, recompute="full") for kind in SPARSE.kinds
    )


def test_logits_are_on_the_stage_that_keeps_least():
    one = of_layer(MODEL, 1)
    logits = 8 * 10 * 4000
    assert passing(MODEL, 1, 1, p=2, m=2).logits == max(0, logits - 3 * one)
    assert passing(MODEL, 1, 1, p=2, m=1).logits == logits
    assert passing(SHAPES["gpt3-175b"], 1, 1, t=8, p=8, m=64).logits == 0


# --- what is refused ------------------------------------------------------------------------------

SMALL = ModelShape(6, 24, 4, vocab=40, seq=9)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: model_states(0, 4, 1), "params is 0, must be a whole number of at least 1"),
        (lambda: model_states(1.5, 4, 1), "params is 1.5"),
        (lambda: model_states(float("inf"), 4, 1), "params is inf"),
        (lambda: model_states(float("nan"), 4, 1), "params is nan"),
        (lambda: model_states(True, 4, 1), "params is True"),
        (lambda: model_states("7", 4, 1), "params is '7'"),
        (lambda: model_states(10, 0, 1), "d is 0"),
        (lambda: model_states(10, 2.0, 1), "d is 2.0"),
        (lambda: model_states(10, 2, 4), "stage is 4, must be 0, 1, 2 or 3"),
        (lambda: model_states(10, 2, -1), "stage is -1"),
        (lambda: model_states(10, 2, True), "stage is True"),
        (lambda: model_states(10, 2, "3"), "stage is '3'"),
        (lambda: model_states(10, 2, 1, "fp8"), "recipe is 'fp8', must be one of fp32, mixed"),
        (lambda: activations(SMALL, 0), "microbatch is 0"),
        (lambda: activations(SMALL, 1, t=0), "t is 0"),
        (lambda: activations(SMALL, 1, t=3), "t is 3, must divide heads = 4"),
        (lambda: activations(replace(SMALL, hidden=30), 1, t=4), "t is 4, must divide hidden = 30"),
        (lambda: activations(SMALL, 1, t=2, sequence_parallel=True), "t is 2, must divide seq = 9"),
        (lambda: activations(SMALL, 1, p=7), "p is 7, must be at most the 6 layers"),
        (lambda: activations(SMALL, 1, p=3, v=3), r"p \* v = 9, must be at most the 6 layers"),
        (lambda: activations(SMALL, 1, p=0), "p is 0"),
        (lambda: activations(SMALL, 1, m=-1), "m is -1"),
        (lambda: activations(SMALL, 1, v=0), "v is 0"),
        (lambda: activations(SMALL, 1, recompute="all"), "recompute is 'all', must be one of none"),
        (lambda: activations(SMALL, 1, attention="fast"), "attention is 'fast', must be one of na"),
        (lambda: parameters(SPARSE, t=16), "t is 16, must divide heads = 4"),
        (
            lambda: parameters(replace(SPARSE, experts=replace(EXPERTS, hidden=23)), t=2),
            "t is 2, must divide experts.hidden = 23",
        ),
        (lambda: parameters(SMALL, t=8), "t is 8, must divide heads"),
        (lambda: parameters(ModelShape(1, 24, 12, 9, 9, kv_heads=4), t=6), "kv_heads = 4 or be a"),
        (lambda: kv_cache(SMALL, -1), "tokens is -1"),
        (lambda: kv_cache(SMALL, 1, size=0), "size is 0"),
        (lambda: deepspeed_zero2(0, 8, 1, True), "total_params is 0"),
        (lambda: deepspeed_zero2(9, 0, 1, True), "gpus_per_node is 0"),
        (lambda: deepspeed_zero2(9, 1, 0, True), "nodes is 0"),
        (lambda: deepspeed_zero3(9, 0), "largest_layer_params is 0"),
        (lambda: deepspeed_zero3(9, 10), "largest_layer_params is 10, must be at most total_par"),
        (lambda: deepspeed_zero3(9, 1, 1, 0), "nodes is 0"),
        (lambda: infinity(SMALL, 0), "batch is 0"),
        (lambda: infinity(SMALL, 1, 0), "interval is 0"),
        (lambda: infinity(SMALL, 1, 7), "interval is 7, must be at most the 6 layers"),
        (lambda: efficiency(0, 1, 1), "intensity is 0, must be a number above 0 and finite"),
        (lambda: efficiency(1, -1, 1), "bandwidth is -1"),
        (lambda: efficiency(1, 1, float("nan")), "peak is nan"),
        (lambda: efficiency(1, "fast", 1), "bandwidth is 'fast'"),
        (lambda: bandwidth_for(1, 1, 1), "share is 1, must be below 1"),
        (lambda: bandwidth_for(1, 0, 1), "share is 0"),
        (lambda: of_config([1]), "config is a list, must be a mapping"),
        (lambda: of_config({}), "config has no model_type, must be one of llama, "),
        (lambda: of_config({"architectures": ["BertModel"]}), "no model_type, must be one of"),
        (lambda: of_config({"n_embd": 768}), "config has no model_type, must be one of"),
        (lambda: of_config(zero(1)), "config has zero_optimization, as a ds_config.json"),
        (lambda: of_config({"model_type": "llama"}), "config has no num_hidden_layers, hidden_si"),
        (lambda: of_config({"model_type": "gemma3"}), "text_config is None, must be a block"),
        (lambda: of_config(GPT2 | {"add_cross_attention": True}), "must be false: it is not count"),
        (lambda: of_config(GPT2 | {"n_layer": None}), "config has no n_layer, must"),
        (lambda: of_config(GPT2 | {"model_type": "bert"}), "model_type is 'bert', must be one of"),
        (lambda: of_config(LLAMA | {"model_type": ["llama"]}), "model_type is"),
        (lambda: of_config(LLAMA | {"head_dim": 6.5}), "head is 6.5, must be a whole number"),
        (lambda: of_config(LLAMA | {"mlp_bias": "no"}), "mlp_bias is 'no', must be true or false"),
        (lambda: of_config(LLAMA | {"tie_word_embeddings": "no"}), "must be true or false"),
        (lambda: of_config(GPT2 | {"n_head": 7}), "must be a multiple of heads = 7"),
        (lambda: of_config(GPT2 | {"n_layer": "12"}), "layers is '12'"),
        (lambda: passing(SMALL, 0, 1), "microbatch is 0"),
        (lambda: passing(SMALL, 1, 4), "stage is 4, must be 0, 1, 2 or 3"),
        (lambda: passing(SMALL, 1, 1, reserve=-1), "reserve is -1"),
        (lambda: of_deepspeed(LLAMA), "config has model_type, as a model's config.json"),
        (lambda: of_deepspeed({"n_embd": 9}), "config has n_embd, as a model's config.json"),
        (
            lambda: of_deepspeed({"train_batch_size": 9}, d=4),
            "train_batch_size is 9, must be a multiple of 4 with d = 4",
        ),
        (
            lambda: of_deepspeed(
                {
                    "train_batch_size": 32, "train_micro_batch_size_per_gpu": 2,
                    "gradient_accumulation_steps": 2,
                },
                d=4,
            ),
            "train_batch_size is 32, must be 16 with train_micro_batch_size_per_gpu = 2, "
            "gradient_accumulation_steps = 2, d = 4",
        ),
        (
            lambda: of_deepspeed(zero(3, stage3_max_live_parameters="many")),
            "stage3_max_live_parameters is 'many'",
        ),
        (lambda: of_deepspeed([]), "config is a list, must be a mapping"),
        (lambda: of_deepspeed(zero(4)), "zero_optimization.stage is 4, must be 0, 1, 2 or 3"),
        (lambda: of_deepspeed(zero(True)), "zero_optimization.stage is True"),
        (lambda: of_deepspeed({"zero_optimization": 2}), "zero_optimization is 2, must be a block"),
        (lambda: of_deepspeed(zero(3, offload_param="cpu")), "offload_param is 'cpu', must be a"),
        (
            lambda: of_deepspeed(zero(3, offload_param={"device": "disk"})),
            "offload_param.device is 'disk', must be one of none, cpu, nvme",
        ),
        (
            lambda: of_deepspeed(zero(2, offload_param={"device": "cpu"})),
            "offload_param.device is 'cpu', must be none under stage 2",
        ),
        (
            lambda: of_deepspeed(zero(2, offload_optimizer={"device": "nvme"})),
            "offload_optimizer.device is 'nvme', must be none or cpu under stage 2: it takes stage",
        ),
        (
            lambda: of_deepspeed(zero(0, offload_optimizer={"device": "cpu"})),
            "offload_optimizer.device is 'cpu', must be none under stage 0",
        ),
        (lambda: of_deepspeed({"fp16": {"enabled": "yes"}}), "fp16.enabled is 'yes', must be"),
        (lambda: of_deepspeed(zero(1) | {"bf16": {"enabled": True}}), "both true, must be one"),
        (
            lambda: of_deepspeed(zero(1) | {"data_types": {"grad_accum_dtype": "int8"}}),
            "grad_accum_dtype is 'int8', must be one of fp32, fp16, bf16",
        ),
        (
            lambda: of_deepspeed({"train_micro_batch_size_per_gpu": 0}),
            "train_micro_batch_size_per_gpu is 0",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def test_numbers_of_numpy_are_welcome():
    seven = np.float64(7.5e9), np.int64(64), np.int32(2)
    assert model_states(*seven) == model_states(7_500_000_000, 64, 2)
    small = {"t": np.int64(2), "p": np.int8(3), "m": np.int16(5), "v": np.int64(2)}
    plain = {name: int(size) for name, size in small.items()}
    kept = activations(SMALL, np.int64(3), **small)
    assert kept == activations(SMALL, 3, **plain) and type(kept) is int
    assert parameters(SMALL, np.int64(2), np.int64(3)) == parameters(SMALL, 2, 3)
    host, gpu = deepspeed_zero3(np.int64(175e9), np.int64(1.812e9), np.int64(8), np.int64(16))
    assert (host, gpu) == deepspeed_zero3(175e9, 1.812e9, 8, 16) and type(gpu) is int
    assert infinity(SMALL, np.int64(3)) == infinity(SMALL, 3)
    assert efficiency(np.float32(2), np.int64(3), np.float64(6)) == 0.5
