"""Megatron-LM's arguments for a model under a layout.

megatron/training/arguments.py and megatron/core/transformer of Megatron-LM with core 0.16.
"""

from weft.plan.arguments import instance, whole
from weft.plan.composing.layout import Layout
from weft.plan.composing.megatron.names import PAD, STRATEGIES
from weft.plan.shape import ModelShape

SAID = "one_f_one_b", "interleaved"  # its schedules


def to_megatron(shape: ModelShape, layout: Layout, batch: int) -> list[str]:
    """The arguments that make Megatron-LM train such a model under such a layout, in bf16.

    There is none for d, which follows from how many processes are started. Where p v does not
    divide the layers, embedding and loss count as layers if that comes out even, and else a layout
    says each stage. Data, optimizer and learning rate are the caller's. ValueError says what
    Megatron-LM has no argument for.

    >>> to_megatron(ModelShape(24, 1024, 16, 51200, 2048), Layout(p=2, d=4), 32)[:6]
    ['--num-layers', '24', '--hidden-size', '1024', '--num-attention-heads', '16']
    """
    instance(ModelShape, shape=shape)
    instance(Layout, layout=layout)
    batch = whole("batch", batch)
    layout.microbatches(batch)
    said = _say_model(shape) | _say_sizes(shape, layout.t) | _say_experts(shape, layout)
    said |= _say_layout(layout) | _say_stages(shape.layers, layout)
    said |= {"micro-batch-size": layout.microbatch, "global-batch-size": batch, "bf16": True}
    found = []
    for name, value in said.items():
        if value is not None and value is not False:
            found += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return found


def _say_model(shape: ModelShape) -> dict:
    """What is multiplied, normed and added in a layer."""
    for what, wrong in (
        ("embedding", shape.embedding is not None),
        ("layer_norms", shape.layer_norms != 2),
        ("norm_vectors", shape._vectors == 0),
        ("biased", shape.biased not in (None, (), ("qkv",)) or (shape.bias and shape.biased)),
    ):
        if wrong:
            value = getattr(shape, what)
            raise ValueError(f"{what} is {value!r}, must be as Megatron-LM can say it")
    head = shape.key_width if shape.head is not None and not shape.latent else None
    return {
        "num-layers": shape.layers,
        "hidden-size": shape.width,
        "num-attention-heads": shape.heads,
        "kv-channels": head,
        "group-query-attention": shape.kv_heads is not None,
        "num-query-groups": shape.kv_heads,
        "ffn-hidden-size": shape.ffn if shape.gated else shape.hidden,
        "swiglu": shape.gated,
        "normalization": "RMSNorm" if shape._vectors == 1 else None,
        "disable-bias-linear": not shape.bias,
        "add-qkv-bias": bool(shape.biased),
        "qk-layernorm": shape.head_norms,
        "softmax-type": "learnable" if shape.sinks else None,
        "untie-embeddings-and-output-weights": not shape.tied,
    }


def _say_sizes(shape: ModelShape, t: int) -> dict:
    """Tokens, positions, vocabulary, windows and latent attention."""
    pad = next((k for k in (128, 64, 32, 16, 8, 4, 2, 1) if shape.vocab % (k * t) == 0), PAD)
    rope = shape.positions == 0
    said = {
        "seq-length": shape.seq,
        "max-position-embeddings": shape.seq if rope else shape.positions or shape.seq,
        "position-embedding-type": "rope" if rope else None,
        "vocab-size": shape.vocab,
        "make-vocab-size-divisible-by": None if pad == PAD else pad,
    }
    if shape.windowed:
        full, layers = shape.layers - shape.windowed, shape.layers
        said["window-size"] = f"{shape.window - 1},0"
        if full:
            every = next((n for n in range(2, layers + 1) if layers // n == full), None)
            said["window-attn-skip-freq"] = every or f"([1]*{shape.windowed}+[0]*{full})"
    if shape.latent:
        latent = shape.latent
        said |= {
            "multi-latent-attention": True,
            "q-lora-rank": latent.query,
            "kv-lora-rank": latent.key_value,
            "qk-head-dim": shape.key_width - latent.rope,
            "qk-pos-emb-head-dim": latent.rope,
            "v-head-dim": latent.value,
        }
    return said


def _say_experts(shape: ModelShape, layout: Layout) -> dict:
    """Experts and the ranks that share them."""
    if shape.experts is None:
        if layout.e > 1:
            raise ValueError(f"e is {layout.e}, must be 1 for a model without experts")
        return {}
    experts = shape.experts
    if experts.count % layout.e:
        raise ValueError(f"e is {layout.e}, must divide the {experts.count} experts")
    dense = shape.layers - (experts.layers or shape.layers)
    return {
        "num-experts": experts.count,
        "moe-router-topk": experts.active,
        "moe-ffn-hidden-size": experts.hidden,
        "moe-shared-expert-intermediate-size": experts.shared or None,
        "moe-shared-expert-gate": experts.shared_gate,
        "moe-layer-freq": f"([0]*{dense}+[1]*{experts.layers})" if dense else None,
        "moe-token-dispatcher-type": "alltoall",
        "moe-grouped-gemm": True,
        "expert-model-parallel-size": layout.e,
        "expert-tensor-parallel-size": layout.t,
    }


def _say_layout(layout: Layout) -> dict:
    """Axes, ZeRO and recomputing."""
    if layout.p > 1 and layout.schedule not in SAID:
        raise ValueError(
            f"schedule is {layout.schedule!r}, must be one of {', '.join(SAID)} in Megatron-LM"
        )
    if layout.p > 1 and layout.zero > 1:
        rule = (
            "must be 0 or 1 with p > 1 in Megatron-LM: its FSDP and its pipeline exclude each other"
        )
        raise ValueError(f"zero is {layout.zero}, {rule}")
    full = layout.recompute == "full"
    said = {
        "tensor-model-parallel-size": layout.t,
        "pipeline-model-parallel-size": layout.p,
        "context-parallel-size": layout.c,
        "sequence-parallel": layout.sequence_parallel and layout.t > 1,
        "recompute-granularity": None if layout.recompute == "none" else layout.recompute,
        "recompute-method": "uniform" if full else None,
        "recompute-num-layers": 1 if full else None,
        "overlap-grad-reduce": layout.d * layout.c > 1,
        "use-distributed-optimizer": layout.zero > 0,
        "overlap-param-gather": layout.zero > 0 and layout.d * layout.c > 1,
    }
    if layout.zero > 1:
        said |= {
            "use-megatron-fsdp": True,
            "data-parallel-sharding-strategy": STRATEGIES[layout.zero],
            "no-gradient-accumulation-fusion": True,
            "ckpt-format": "fsdp_dtensor",
        }
    return said


def _say_stages(layers: int, layout: Layout) -> dict:
    """Virtual stages, and how the layers are dealt out where p v does not divide them."""
    p, v, n = layout.p, layout.v, layout.p * layout.v
    if p == 1:
        if v > 1:
            raise ValueError(f"v is {v}, must be 1 without a pipeline in Megatron-LM")
        return {}
    if layers < n:
        raise ValueError(f"p * v is {n}, must be at most the {layers} layers")
    said = {"num-virtual-stages-per-pipeline-rank": v if v > 1 else None}
    if layers % n == 0:
        return said
    for more in (("loss",), ("embedding", "loss")):
        if (layers + len(more)) % n == 0:
            return said | {f"account-for-{part}-in-pipeline-split": True for part in more}
    return {"pipeline-model-parallel-layout": _stage_text(layers, n)}


def _stage_text(layers: int, stages: int) -> str:
    """A layout whose smaller stages are at both ends, where embedding and loss are.

    >>> _stage_text(10, 4)
    'Ett|ttt|ttt|ttL'
    """
    each, more = divmod(layers, stages)
    first = (stages - more) // 2
    sizes = [each + (first <= i < first + more) for i in range(stages)]
    return f"E{'|'.join('t' * size for size in sizes)}L"
