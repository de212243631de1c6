"""torchtitan's configs for a layout: the TOML of its releases 0.2, and 0.3's Python.

torchtitan/config/job_config.py, distributed/pipeline_parallel.py and distributed/parallel_dims.py
of torchtitan 0.2.2; torchtitan/config/configs.py and models/llama3/config_registry.py of 0.3.0,
which reads no TOML.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from weft.plan.arguments import chosen, instance, whole
from weft.plan.composing.layout import Layout
from weft.plan.shape import ModelShape

RELEASES = "torchtitan 0.2"  # 0.2.0 to 0.2.2 read these keys as TOML
SCHEDULES = {
    "gpipe": "GPipe",
    "one_f_one_b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zb_v": "ZBVZeroBubble",
    "dualpipe_v": "DualPipeV",
}
ONE_STAGE = "GPipe", "1F1B"  # on each rank; the others have two, or what layers_per_stage says
RESHARD = {2: "never", 3: "always"}
DEGREES = "pipeline", "tensor", "context", "expert"
MODES = "none", "selective", "full"
_LLAMA = {"gated": True, "bias": False, "tied": False, "positions": 0, "norms": 1}
FLAVORS = {  # of torchtitan/models/llama3, with its vocabulary of Llama 3's tokenizer
    name: ModelShape(*sizes, **_LLAMA)
    for name, sizes in {
        "8B": (32, 4096, 32, 128256, 8192, 8, 14336),
        "70B": (80, 8192, 64, 128256, 8192, 8, 28672),
        "405B": (126, 16384, 128, 128256, 8192, 8, 53248),
    }.items()
}
PARALLELISM = """
    data_parallel_replicate_degree data_parallel_shard_degree fsdp_reshard_after_forward
    tensor_parallel_degree pipeline_parallel_degree pipeline_parallel_first_stage_less_layers
    pipeline_parallel_last_stage_less_layers pipeline_parallel_layers_per_stage
    pipeline_parallel_schedule pipeline_parallel_microbatch_size context_parallel_degree
    expert_parallel_degree expert_tensor_parallel_degree disable_loss_parallel
    enable_async_tensor_parallel enable_compiled_autograd module_fqns_per_model_part
    pipeline_parallel_split_points pipeline_parallel_schedule_csv context_parallel_load_balancer
    pipeline_parallel_expert_parallel_overlap context_parallel_rotate_method
    expert_parallel_comm_backend
"""
TRAINING = """
    dataset dataset_path local_batch_size global_batch_size seq_len max_norm steps
    enable_cpu_offload dtype mixed_precision_param mixed_precision_reduce gc_freq gc_debug
    dataloader compile seed deterministic
"""
CHECKPOINT = """
    mode selective_ac_option per_op_sac_force_recompute_mm_shapes_by_fqns early_stop memory_budget
    visualize_memory_budget_pareto preserve_rng_state determinism_check debug
"""
KNOWN = {
    "parallelism": PARALLELISM.split(),
    "training": TRAINING.split(),
    "activation_checkpoint": CHECKPOINT.split(),
}
OTHERS = """
    job profiling metrics model optimizer lr_scheduler checkpoint compile quantize float8 mx
    comm memory_estimation fault_tolerance experimental validation debug
"""
RENAMED = {  # of torchtitan before 0.1
    "training.batch_size": "training.local_batch_size",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
}


def to_torchtitan(shape: ModelShape, layout: Layout, batch: int) -> str:
    """The TOML with which torchtitan 0.2 trains under such a layout.

    Where the model is one of its llama3 flavors the flavor is named. ValueError says what
    torchtitan cannot do, and why. Its selective recomputing is another than ours, which a comment
    says.

    >>> "tensor_parallel_degree = 8" in to_torchtitan(
    ...     FLAVORS["70B"], Layout(t=8, d=32, zero=3, sequence_parallel=True), 512)
    True
    """
    said = _said(shape, layout, batch)
    if layout.t > 1 and not layout.sequence_parallel:
        rule = "must be True with t > 1: up to 0.2.2 its tensor parallelism always is"
        raise ValueError(f"sequence_parallel is False, {rule} in torchtitan")
    if layout.e > 1:
        said["parallelism"]["expert_parallel_degree"] = layout.e
        said["parallelism"]["expert_tensor_parallel_degree"] = layout.t
    flavor = _flavor(shape)
    model = {"name": "llama3", "flavor": flavor} if flavor else {}
    blocks = {"model": model, **said, "activation_checkpoint": {"mode": layout.recompute}}
    if layout.recompute == "selective":
        blocks["activation_checkpoint"]["selective_ac_option"] = "op"
    lines = [f"# {RELEASES} reads this; 0.3 takes a Python function"]
    if not flavor:
        lines.append("# [model]: torchtitan has no flavor of this shape, it has to be registered")
    for name, values in blocks.items():
        if values:
            lines += ["", f"[{name}]", *(f"{key} = {_toml(v)}" for key, v in values.items())]
            if values.get("selective_ac_option"):
                lines.append("# recomputes every other matmul and what is cheap, more than ours")
    return "\n".join(lines) + "\n"


def to_torchtitan_function(shape: ModelShape, layout: Layout, batch: int) -> str:
    """The same for torchtitan 0.3: a Python function, for a config_registry.py.

    It begins with the config of the llama3 flavor that the shape is; where it is none of them, its
    first line is the caller's to change. ValueError as `to_torchtitan`.
    """
    said = _said(shape, layout, batch)
    if layout.e > 1 and layout.t > 1:
        rule = "must be 1 with t > 1: from 0.3 on its experts take the tensor ranks, too"
        raise ValueError(f"e is {layout.e}, {rule} in torchtitan")
    degrees = said["parallelism"] | {"expert_parallel_degree": layout.e}
    if layout.t > 1 and not layout.sequence_parallel:
        degrees["enable_sequence_parallel"] = False
    flavor = _flavor(shape)
    base = f"llama3_{flavor.lower()}" if flavor else "llama3_70b"
    mode = {"none": "None", "full": "FullAC.Config()", "selective": "SelectiveAC.Config()"}
    kind = mode[layout.recompute].partition(".")[0]
    lines = [
        "# torchtitan 0.3.0: train with --module llama3 --config planned, from its config_registry",
        "from torchtitan.config import ParallelismConfig",
    ]
    if layout.recompute != "none":
        lines.append(f"from torchtitan.distributed.activation_checkpoint import {kind}")
    note = "" if flavor else "  # torchtitan has no flavor of this shape: put your own here"
    lines += ["", "", "def planned():", f"    config = {base}(){note}"]
    lines += [f"    config.training.{key} = {value!r}" for key, value in said["training"].items()]
    lines += ["    config.parallelism = ParallelismConfig("]
    lines += [f"        {key}={_quoted(value)}," for key, value in degrees.items()]
    lines += ["    )", f"    config.activation_checkpoint = {mode[layout.recompute]}"]
    return "\n".join([*lines, "    return config"]) + "\n"


def _said(shape: ModelShape, layout: Layout, batch: int) -> dict[str, dict[str, Any]]:
    """The training and parallelism blocks, which both forms have."""
    instance(ModelShape, shape=shape)
    instance(Layout, layout=layout)
    batch = whole("batch", batch)
    layout.microbatches(batch)
    copies = _copies(layout)
    local = batch // layout.d if layout.p > 1 else layout.microbatch
    parallelism = copies | {
        "tensor_parallel_degree": layout.t,
        "pipeline_parallel_degree": layout.p,
        "context_parallel_degree": layout.c,
    }
    if layout.p > 1:
        parallelism |= _stages(shape.layers, layout)
        parallelism["pipeline_parallel_microbatch_size"] = layout.microbatch
    elif layout.v > 1:
        raise ValueError(f"v is {layout.v}, must be 1 without a pipeline in torchtitan")
    training = {"local_batch_size": local, "global_batch_size": batch, "seq_len": shape.seq}
    return {"training": training, "parallelism": parallelism}


def _copies(layout: Layout) -> dict[str, Any]:
    """Copies or shards of the model: DDP for stage 0, FSDP2 for 2 and 3."""
    if layout.zero == 1:
        raise ValueError(
            "zero is 1, must be 0, 2 or 3 in torchtitan: FSDP2 deals out gradients with the "
            "optimizer"
        )
    others = layout.p * layout.t * layout.c * layout.e
    if layout.zero == 0 and layout.d * layout.c > 1:
        if others > 1:
            raise ValueError(
                f"zero is 0, must be 2 or 3 in torchtitan with {layout}: its DDP runs alone"
            )
        degrees = layout.d, 1
    else:
        degrees = 1, layout.d
    names = "data_parallel_replicate_degree", "data_parallel_shard_degree"
    said: dict[str, Any] = dict(zip(names, degrees, strict=True))
    return said | ({"fsdp_reshard_after_forward": RESHARD[layout.zero]} if layout.zero else {})


def _stages(layers: int, layout: Layout) -> dict[str, Any]:
    """Schedule and stages; embedding and output count as layers where that comes out even."""
    if layout.schedule not in SCHEDULES:
        rule = f"must be one of {', '.join(SCHEDULES)} in torchtitan"
        raise ValueError(f"schedule is {layout.schedule!r}, {rule}")
    name, n = SCHEDULES[layout.schedule], layout.p * layout.v
    if layout.v == 1 and name not in ONE_STAGE:
        raise ValueError(f"v is 1, must be 2 or more with {name} in torchtitan")
    less = 1 if layers % n and (layers + 2) % n == 0 else 0
    said = {
        "pipeline_parallel_schedule": name,
        "pipeline_parallel_first_stage_less_layers": less,
        "pipeline_parallel_last_stage_less_layers": less,
    }
    if layout.v > 2:
        each = -(-(layers + 2 * less) // n)
        if -(-(layers + 2 * less) // each) != n:
            rule = f"must cut {layers} layers into so many stages of as many layers in torchtitan"
            raise ValueError(f"p * v is {n}, {rule}")
        said["pipeline_parallel_layers_per_stage"] = each
    return said


def _flavor(shape: ModelShape) -> str | None:
    """The flavor of llama3 that a shape is, whatever its sequences."""
    alike = ("layers", "width", "heads", "groups", "ffn", "vocab", "gated", "tied", "bias")
    for name, flavor in FLAVORS.items():
        if all(getattr(shape, field) == getattr(flavor, field) for field in alike):
            return name
    return None


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


# --- reading --------------------------------------------------------------------------------------


def from_torchtitan(
    text: str, devices: int | None = None, shape: ModelShape | None = None
) -> tuple[ModelShape, Layout, int]:
    """The model, the layout and the batch of a TOML config of torchtitan 0.2.

    The model is `shape`, or the llama3 flavor that the text names, on sequences of seq_len.
    `devices` are for a shard degree of -1, which is all that are left. ValueError names keys that
    torchtitan does not know, and what a Layout cannot say, such as shards within copies (HSDP).

    >>> toml = to_torchtitan(FLAVORS["8B"], Layout(d=8, zero=3, microbatch=2), 16)
    >>> print(*from_torchtitan(toml)[1:])
    d=8, microbatch 2, ZeRO-3 16
    """
    instance(str, text=text)
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"text is {text[:40]!r}, must be TOML: {error}") from None
    _check(config)
    training, parallelism = config.get("training", {}), config.get("parallelism", {})
    read = {name: _degree(parallelism, f"{name}_parallel_degree") for name in DEGREES}
    p, t, c, e = (read[name] for name in DEGREES)
    if e > 1 and _degree(parallelism, "expert_tensor_parallel_degree") != t:
        raise ValueError(f"expert_tensor_parallel_degree must be {t}: a Layout cuts experts alike")
    d, zero = _shards(parallelism, p, t, c, devices)
    model = config.get("model", {})
    if shape is None:
        shape = FLAVORS.get(model.get("flavor")) if model.get("name") == "llama3" else None
    if shape is None:
        raise ValueError("shape is None, must be given: the text names no flavor that is known")
    instance(ModelShape, shape=shape)
    shape = replace(shape, seq=whole("training.seq_len", training.get("seq_len", 2048)))
    local = whole("training.local_batch_size", training.get("local_batch_size", 8))
    batch = training.get("global_batch_size", -1)
    batch = local * d if batch == -1 else whole("training.global_batch_size", batch)
    how: dict[str, Any] = {"microbatch": local}
    if p > 1:
        if batch != local * d:
            rule = f"must be local_batch_size * d = {local * d}: more would empty the pipeline"
            raise ValueError(f"training.global_batch_size is {batch}, {rule} between")
        how = _schedule(parallelism, shape.layers, p)
    mode = chosen(
        "activation_checkpoint.mode",
        config.get("activation_checkpoint", {}).get("mode", "selective"), MODES,
    )  # fmt: skip
    layout = Layout(
        p=p, t=t, d=d, c=c, e=e, zero=zero, sequence_parallel=t > 1, recompute=mode, **how
    )
    layout.microbatches(batch)
    return shape, layout, batch


def _check(config: Mapping[str, Any]) -> None:
    """Refuse sections and keys that torchtitan has not, or no longer."""
    for section, values in config.items():
        if section not in KNOWN and section not in OTHERS.split():
            raise ValueError(f"[{section}] is no section of torchtitan{_near(section, KNOWN)}")
        instance(Mapping, **{section: values})
        for key in values:
            name = f"{section}.{key}"
            if name in RENAMED:
                raise ValueError(f"{name} is torchtitan's before 0.1: use {RENAMED[name]}")
            if section in KNOWN and key not in KNOWN[section]:
                near = _near(key, KNOWN[section])
                raise ValueError(f"{name} is no key of {RELEASES}{near}")


def _near(name: str, choices) -> str:
    near = get_close_matches(name, sorted(choices), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _degree(parallelism: Mapping[str, Any], key: str) -> int:
    return whole(f"parallelism.{key}", parallelism.get(key, 1))


def _shards(
    parallelism: Mapping[str, Any], p: int, t: int, c: int, devices: int | None
) -> tuple[int, int]:
    """d, and the stage of ZeRO that copies or shards come to."""
    copies = _degree(parallelism, "data_parallel_replicate_degree")
    shards = parallelism.get("data_parallel_shard_degree", -1)
    others = copies * p * t * c
    if shards == -1:
        if devices is None:
            raise ValueError("devices is None, must be given: data_parallel_shard_degree is -1")
        shards = max(1, whole("devices", devices) // others)
    shards = whole("parallelism.data_parallel_shard_degree", shards)
    if devices is not None and devices != others * shards:
        raise ValueError(f"devices is {devices}, must be {others * shards} by the degrees")
    if copies > 1 and shards * c > 1:
        raise ValueError(
            f"data_parallel_replicate_degree is {copies}, must be 1 with shards: a Layout has no "
            "shards within copies (HSDP)"
        )
    if shards * c == 1:
        return copies, 0
    key = "fsdp_reshard_after_forward"
    said = chosen(key, parallelism.get(key, "default"), ("default", "always", "never"))
    kept = p > 1 if said == "default" else said == "never"  # the weights, between microbatches
    return copies * shards, 2 if kept else 3


def _schedule(parallelism: Mapping[str, Any], layers: int, p: int) -> dict[str, Any]:
    """Schedule, virtual stages and microbatch of a pipeline."""
    name = parallelism.get("pipeline_parallel_schedule", "1F1B")
    ours = {theirs.lower(): name for name, theirs in SCHEDULES.items()}
    chosen("parallelism.pipeline_parallel_schedule", str(name).lower(), ours)
    v = 1 if str(name).lower() in (each.lower() for each in ONE_STAGE) else 2
    each = parallelism.get("pipeline_parallel_layers_per_stage")
    if each is not None:
        less = sum(
            whole(key, parallelism.get(key, 1), least=0)
            for key in (f"pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last"))
        )
        stages = -(-(layers + less) // whole("pipeline_parallel_layers_per_stage", each))
        if stages % p:
            rule = f"must make a multiple of pipeline_parallel_degree = {p} stages"
            raise ValueError(f"pipeline_parallel_layers_per_stage is {each}, {rule}, not {stages}")
        v = stages // p
    size = parallelism.get("pipeline_parallel_microbatch_size", 1)
    return {
        "schedule": ours[str(name).lower()],
        "v": v,
        "microbatch": whole("parallelism.pipeline_parallel_microbatch_size", size),
    }
