"""DeepSpeed's ds_config.json for a layout, and the layout that one describes.

deepspeed/runtime/config.py, constants.py and pipe/engine.py as of DeepSpeed 0.19; what it says of
memory alone, offloading among it, is read by weft.plan.memory.of_deepspeed.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from weft.plan.arguments import instance, whole
from weft.plan.composing.layout import Layout
from weft.plan.memory import of_deepspeed

BATCH, MICRO = "train_batch_size", "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"
TENSOR, SEQUENCE = ("tensor_parallel", "autotp_size"), "sequence_parallel_size"
PIPELINE, STAGES, EVERY = "pipeline", "stages", "activation_checkpoint_interval"
CHECKPOINTING = "activation_checkpointing"
ZERO_WITH_PIPELINE = "DeepSpeed's pipeline engine asserts it: gradients live across microbatches"
KEYS = """
    train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps optimizer scheduler
    communication_data_type seq_parallel_communication_data_type seq_parallel_comm_data_type
    prescale_gradients gradient_predivide_factor sparse_gradients fp16 bf16 bfloat16 amp
    gradient_clipping zero_optimization zero_allow_untested_optimizer zero_force_ds_cpu_optimizer
    steps_per_print wall_clock_breakdown dump_state memory_breakdown flops_profiler
    activation_checkpointing sparse_attention data_efficiency curriculum_learning autotuning
    elasticity csv_monitor tensorboard wandb comet monitor_config comms_logger
    compression_training checkpoint data_types aio nebula compile hybrid_engine
    dataloader_drop_last tensor_parallel pipeline sequence_parallel_size progressive_layer_drop
    eigenvalue quantize_training disable_allgather graph_harvesting vocabulary_size timers
    use_data_before_expert_parallelism expert_parallel gradient_accumulation_dtype torch_autocast
"""
ZERO_KEYS = """
    stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce
    allgather_partitions allgather_bucket_size overlap_comm load_from_fp32_weights
    elastic_checkpoint offload_param offload_optimizer zenflow sub_group_size
    stage3_prefetch_bucket_size stage3_param_persistence_threshold
    stage3_model_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance
    stage3_gather_16bit_weights_on_model_save stage3_module_granularity_threshold
    stage3_use_all_reduce_for_fetch_params stage3_allgather_sequential
    stage3_partition_stream_chunk_size ignore_unused_parameters legacy_stage1
    round_robin_gradients zero_hpz_partition_size zero_quantized_weights
    zero_quantized_nontrainable_weights zero_quantized_gradients zeropp_loco_param mics_shard_size
    mics_hierarchical_params_gather memory_efficient_linear pipeline_loading_checkpoint
    override_module_apply log_trace_cache_warnings enable_sanity_checks
    save_muon_momentum_buffer_in_memory leaf_module
"""
KNOWN = {"": KEYS.split(), "zero_optimization": ZERO_KEYS.split()}
RENAMED = {
    "zero_optimization.cpu_offload": "zero_optimization.offload_optimizer",
    "zero_optimization.cpu_offload_params": "zero_optimization.offload_param",
    "zero_optimization.cpu_offload_param": "zero_optimization.offload_param",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save":
        "zero_optimization.stage3_gather_16bit_weights_on_model_save",
}  # fmt: skip
REFUSED = (  # of a layout: when it cannot be said, which field, what it may be, and why
    (
        lambda at: at.p > 1 and at.zero > 1,
        "zero", "0 or 1 with p > 1", ZERO_WITH_PIPELINE,
    ),
    (
        lambda at: at.t > 1 and at.zero > 2,
        "zero", "at most 2 with t > 1", "its AutoTP asserts it",
    ),
    (
        lambda at: at.p > 1 and at.schedule != "one_f_one_b",
        "schedule", "'one_f_one_b'", "its pipeline engine has no other",
    ),
    (
        lambda at: at.p == 1 and at.v > 1,
        "v", "1", "its pipeline engine has one stage on each rank",
    ),
    (
        lambda at: at.e > 1,
        "e", "1", "experts are cut by MoE(ep_size=…) in the model, not by its config",
    ),
    (
        lambda at: at.t > 1 and at.sequence_parallel,
        "sequence_parallel", "False", "its AutoTP keeps activations whole on each tensor rank",
    ),
    (
        lambda at: at.recompute == "selective",
        "recompute", "'none' or 'full'", "it recomputes whole layers",
    ),
)  # fmt: skip


def to_deepspeed(layout: Layout, batch: int) -> dict[str, Any]:
    """What stands in ds_config.json for such a layout, in bf16, as a mapping ready for JSON.

    The stages of a pipeline are also an argument of its PipelineModule. Without a pipeline it is
    the model that has to recompute, by deepspeed.checkpointing; the block here says how. Tensor
    ranks are its AutoTP's; Megatron-DeepSpeed has arguments of its own for t and p. ValueError says
    what DeepSpeed cannot do, and why.

    >>> to_deepspeed(Layout(d=8, zero=2, microbatch=4), 64)["gradient_accumulation_steps"]
    2
    """
    instance(Layout, layout=layout)
    steps = layout.microbatches(batch)
    _check(layout)
    config: dict[str, Any] = {
        BATCH: batch,
        MICRO: layout.microbatch,
        STEPS: steps,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": layout.zero},
    }
    if layout.zero:
        config["zero_optimization"]["overlap_comm"] = True
    if layout.t > 1:
        config[TENSOR[0]] = {TENSOR[1]: layout.t}
    if layout.c > 1:
        config[SEQUENCE] = layout.c
    full = layout.recompute == "full"
    if layout.p > 1:
        config[PIPELINE] = {STAGES: layout.p} | ({EVERY: 1} if full else {})
    elif full:
        config[CHECKPOINTING] = {"partition_activations": False}
    return config


def from_deepspeed(config: Mapping[str, Any], devices: int) -> tuple[Layout, int]:
    """The layout and the batch of a ds_config.json, as a mapping, on so many devices.

    The model is not in it. Of the three keys for the batch one may be missing; `stages` of a
    pipeline that are left to "auto" are one. A block for activation checkpointing is taken to be
    used. ValueError names what does not go together, and keys that DeepSpeed does not know.

    >>> config = to_deepspeed(Layout(p=2, d=4, zero=1), 16)
    >>> print(*from_deepspeed(config, devices=8))
    p=2 d=4 one_f_one_b, microbatch 1, ZeRO-1 16
    """
    devices = whole("devices", devices)
    stage = of_deepspeed(config).stage
    for part, keys in KNOWN.items():
        _check_keys(part, _block(config, part) if part else config, keys)
    t = _size("tensor_parallel.autotp_size", _block(config, TENSOR[0]).get(TENSOR[1]))
    c = _size(SEQUENCE, config.get(SEQUENCE))
    pipeline = _block(config, PIPELINE)
    p = _size("pipeline.stages", pipeline.get(STAGES))
    if devices % (p * t * c):
        raise ValueError(f"devices is {devices}, must be a multiple of p * t * c = {p * t * c}")
    d = devices // (p * t * c)
    try:
        settings = of_deepspeed(config, d)
    except ValueError as error:
        raise ValueError(f"devices is {devices}, of which {d} share the batch: {error}") from None
    if settings.microbatch is None:
        raise ValueError(f"{MICRO} is missing, must be given, or follow from {BATCH}")
    each = whole(EVERY, pipeline.get(EVERY, 0), least=0)
    full = bool(each) if p > 1 else CHECKPOINTING in config
    layout = Layout(
        p=p, t=t, d=d, c=c, microbatch=settings.microbatch, zero=stage,
        recompute="full" if full else "none",
    )  # fmt: skip
    _check(layout)
    batch = config.get(BATCH)
    if batch in (None, "auto"):
        steps = config.get(STEPS)
        batch = settings.microbatch * d * (1 if steps in (None, "auto") else whole(STEPS, steps))
    return layout, whole(BATCH, batch)


def _check_keys(part: str, block: Mapping[str, Any], known: list[str]) -> None:
    """Refuse keys of a block that are none, or no longer."""
    for key in block:
        name = f"{part}.{key}" if part else str(key)
        if name in RENAMED:
            raise ValueError(f"{name} is no longer DeepSpeed's: use {RENAMED[name]}")
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{name} is no key of DeepSpeed{meant}")


def _check(layout: Layout) -> None:
    for wrong, name, allowed, why in REFUSED:
        if wrong(layout):
            value = getattr(layout, name)
            raise ValueError(f"{name} is {value!r}, must be {allowed} in DeepSpeed: {why}")


def _block(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = config.get(key) or {}
    instance(Mapping, **{key: found})
    return found


def _size(name: str, value: Any) -> int:
    """A number of ranks; one where nothing is said, or 0 as DeepSpeed has it for off."""
    return 1 if value in (None, 0, "auto") else whole(name, value)
