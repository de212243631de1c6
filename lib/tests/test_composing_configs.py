"""The configs of DeepSpeed and torchtitan: written, read again, and refused with the reason."""

import ast
import json
import tomllib
from dataclasses import replace
from itertools import product

import pytest

from weft.plan.composing import (
    Layout,
    from_deepspeed,
    from_torchtitan,
    to_deepspeed,
    to_torchtitan,
    to_torchtitan_function,
)
from weft.plan.composing.torchtitan import FLAVORS, KNOWN
from weft.plan.shape import SHAPES

LLAMA = FLAVORS["70B"]


def layouts():
    """Layouts over all fields that a config can say."""
    grid = product((1, 2, 8), (1, 8), (1, 3), (1, 2), (1, 2, 5), range(4), (False, True))
    for p, t, d, c, v, zero, sequence in grid:
        if (v > 1 and p == 1) or (sequence and t == 1) or (zero and d * c == 1):
            continue
        for recompute, schedule in product(("none", "selective", "full"), ("one_f_one_b", "zb_v")):
            if schedule == "one_f_one_b" or (p > 1 and v < 3):
                yield Layout(
                    p, t, d, c, v=v, microbatch=2, zero=zero, recompute=recompute,
                    schedule=schedule, sequence_parallel=sequence,
                )  # fmt: skip


def test_what_deepspeed_can_say_is_read_again():
    said = 0
    for layout in layouts():
        batch = 8 * layout.d
        try:
            config = to_deepspeed(layout, batch)
        except ValueError:
            continue
        said += 1
        assert from_deepspeed(json.loads(json.dumps(config)), layout.devices) == (layout, batch)
    assert said > 100


def test_what_torchtitan_can_say_is_read_again():
    said = 0
    for layout in layouts():
        batch = 8 * layout.d
        try:
            text = to_torchtitan(LLAMA, layout, batch)
        except ValueError:
            continue
        said += 1
        assert from_torchtitan(text) == (LLAMA, layout, batch)
        assert all(set(tomllib.loads(text)[part]) <= set(KNOWN[part]) for part in KNOWN)
        ast.parse(to_torchtitan_function(LLAMA, layout, batch))
    assert said > 200


@pytest.mark.parametrize(
    ("layout", "complaint"),
    [
        (Layout(p=2, d=2, zero=2), "zero is 2, must be 0 or 1 with p > 1 in DeepSpeed"),
        (Layout(t=2, d=2, zero=3), "zero is 3, must be at most 2 with t > 1"),
        (Layout(p=2, v=2), "schedule is 'interleaved', must be 'one_f_one_b'"),
        (Layout(v=2), "v is 2, must be 1"),
        (Layout(d=2, e=2), "e is 2, must be 1 in DeepSpeed: experts are cut by MoE"),
        (Layout(t=2, sequence_parallel=True), "sequence_parallel is True, must be False"),
        (Layout(recompute="selective"), "recompute is 'selective', must be 'none' or 'full'"),
    ],
)
def test_what_deepspeed_cannot_do_is_named(layout, complaint):
    with pytest.raises(ValueError) as caught:
        to_deepspeed(layout, 4 * layout.d)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("change", "devices", "complaint"),
    [
        ({"tensor_parallel": {"autotp_size": 3}}, 8, "must be a multiple of p * t * c = 3"),
        ({"train_batch_size": 10}, 8, "train_batch_size is 10, must be 16"),
        ({"train_micro_batch_size_per_gpu": "auto", "train_batch_size": None}, 8, "is missing"),
        ({"zero_optimization": {"stage": 4}}, 8, "stage is 4, must be 0, 1, 2 or 3"),
        (
            {"pipeline": {"stages": 2}, "train_batch_size": 8},
            8,
            "zero is 2, must be 0 or 1 with p > 1",
        ),
        ({"sequence_parallel_size": 1.5}, 8, "sequence_parallel_size is 1.5"),
        ({"pipeline": 3}, 8, "pipeline is 3, must be of type Mapping"),
        ({"train_batchsize": 16}, 8, "train_batchsize is no key of DeepSpeed; did you mean train_"),
        ({"zero_optimization": {"stages": 2}}, 8, "zero_optimization.stages is no key"),
        ({"zero_optimization": {"cpu_offload": True}}, 8, "use zero_optimization.offload_optim"),
    ],
)
def test_a_ds_config_that_does_not_add_up_is_named(change, devices, complaint):
    config = to_deepspeed(Layout(d=8, zero=2), 16) | change
    with pytest.raises(ValueError) as caught:
        from_deepspeed(config, devices)
    assert complaint in str(caught.value)


def test_a_ds_config_with_two_of_three_keys_and_auto():
    config = {
        "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3}, "pipeline": {"stages": "auto"},
        "activation_checkpointing": {},
    }  # fmt: skip
    expected = Layout(d=8, microbatch=2, zero=3, recompute="full")
    assert from_deepspeed(config, 8) == (expected, 64)


@pytest.mark.parametrize(
    ("layout", "complaint"),
    [
        (Layout(d=2, zero=1), "zero is 1, must be 0, 2 or 3 in torchtitan: FSDP2"),
        (Layout(p=2, d=2), "zero is 0, must be 2 or 3 in torchtitan with p=2 d=2"),
        (Layout(t=2), "sequence_parallel is False, must be True with t > 1"),
        (Layout(p=2, schedule="zb_h1"), "schedule is 'zb_h1', must be one of gpipe"),
        (Layout(p=2, schedule="interleaved"), "v is 1, must be 2 or more with Interleaved1F1B"),
        (Layout(p=8, v=3), "p * v is 24, must cut 80 layers into so many stages"),
        (Layout(v=2), "v is 2, must be 1 without a pipeline"),
    ],
)
def test_what_torchtitan_cannot_do_is_named(layout, complaint):
    with pytest.raises(ValueError) as caught:
        to_torchtitan(LLAMA, layout, 4 * layout.d)
    assert complaint in str(caught.value)


def test_the_function_takes_what_toml_cannot_say():
    text = to_torchtitan_function(LLAMA, Layout(t=2), 1)
    assert "enable_sequence_parallel=False" in text and "llama3_70b()" in text
    with pytest.raises(ValueError, match="e is 2, must be 1 with t > 1"):
        to_torchtitan_function(LLAMA, Layout(t=2, d=2, e=2, zero=3), 2)


def test_embedding_and_output_stand_for_layers_where_that_comes_out_even():
    text = to_torchtitan(FLAVORS["405B"], Layout(p=16, v=8), 16)
    assert tomllib.loads(text)["parallelism"]["pipeline_parallel_layers_per_stage"] == 1
    assert "pipeline_parallel_first_stage_less_layers = 1" in text
    assert from_torchtitan(text)[1].v == 8


def test_a_model_that_is_no_flavor_is_told_and_given():
    shape, layout = SHAPES["gpt-22b"], Layout(d=2, zero=3)
    text = to_torchtitan(shape, layout, 4)
    assert "torchtitan has no flavor of this shape" in text
    with pytest.raises(ValueError, match="shape is None, must be given"):
        from_torchtitan(text)
    assert from_torchtitan(text, shape=shape) == (shape, layout, 4)


@pytest.mark.parametrize(
    ("part", "devices", "complaint"),
    [
        ("[paralelism]\n", 8, "[paralelism] is no section of torchtitan; did you mean parallelism"),
        ("[parallelism]\ntensor_paralel_degree = 2", 8, "did you mean tensor_parallel_degree"),
        ("[experimental]\npipeline_parallel_degree = 2", 8, "before 0.1: use parallelism.pipe"),
        ("[parallelism]\n", None, "devices is None, must be given: data_parallel_shard_degree"),
        ("[parallelism]\ntensor_parallel_degree = 3", 8, "devices is 8, must be 6"),
        ("[parallelism]\ndata_parallel_replicate_degree = 2", 8, "no shards within copies (HSDP)"),
        ("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = 'ZB'", 8,
         "pipeline_parallel_schedule is 'zb', must be one of"),
        ("[training]\nglobal_batch_size = 128\n[parallelism]\npipeline_parallel_degree = 2", 8,
         "must be local_batch_size * d = 32: more would empty the pipeline"),
        ("[parallelism]\nexpert_parallel_degree = 2\ntensor_parallel_degree = 2", 8,
         "expert_tensor_parallel_degree must be 2"),
        ("[activation_checkpoint]\nmode = 'memory_budget'", 8, "mode is 'memory_budget'"),
        ("= 3", 8, "must be TOML"),
    ],
)  # fmt: skip
def test_a_toml_that_cannot_be_is_named(part, devices, complaint):
    text = "[model]\nname = 'llama3'\nflavor = '8B'\n" + part
    with pytest.raises(ValueError) as caught:
        from_torchtitan(text, devices)
    assert complaint in str(caught.value)


def test_what_a_toml_leaves_out_is_torchtitans_default():
    shape, layout, batch = from_torchtitan("", 16, LLAMA)
    assert (shape, batch) == (replace(LLAMA, seq=2048), 128)
    assert layout == Layout(d=16, microbatch=8, zero=3, recompute="selective")
