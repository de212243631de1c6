"""The model, the layout and the batch that a line of Megatron-LM's arguments asks for.

megatron/training/arguments.py, `validate_args`, of Megatron-LM with core 0.16; tokenizers and
pipeline layouts as in megatron-core 0.16.1.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.plan.composing.command import launched
from weft.plan.composing.layout import Layout
from weft.plan.composing.megatron.given import MegatronGiven, pattern
from weft.plan.composing.megatron.names import PAD, STRATEGIES
from weft.plan.shape import SHAPES, Experts, Latent, ModelShape

TOKENIZERS = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}  # known without a file
POSITIONS = "learned_absolute", "rope", "mrope", "yarn", "relative", "none"


@dataclass(frozen=True)
class MegatronLine:
    """What a line comes to, and what in it does not count.

    `ignored` are arguments that bear on no layout; `uncounted` says, a sentence each, what does
    and is not counted. `dtype` is "bf16", "fp16", "fp32" or "fp8".
    """

    shape: ModelShape
    layout: Layout
    batch: int
    dtype: str
    ignored: tuple[str, ...]
    uncounted: tuple[str, ...]


def from_megatron(
    arguments: Sequence[str], devices: int | None = None
) -> tuple[ModelShape, Layout, int]:
    """The model, the layout and the batch of Megatron-LM's arguments.

    d follows from `devices`, or from torchrun's --nproc-per-node and --nnodes where the words
    before the program's name have them. `words` makes such a list of a shell line, and
    `read_megatron` tells what in it was not counted. ValueError names an argument that Megatron-LM
    does not know or no longer takes, and sizes that do not go together.

    >>> from weft.plan.composing import to_megatron
    >>> line = to_megatron(SHAPES["gpt-22b"], Layout(p=2, t=4, d=3), batch=48)
    >>> print(from_megatron(line, devices=24)[1])
    p=2 t=4 d=3 one_f_one_b, microbatch 1
    """
    line = read_megatron(arguments, devices)
    return line.shape, line.layout, line.batch


def read_megatron(arguments: Sequence[str], devices: int | None = None) -> MegatronLine:
    """All that `from_megatron` says, and the arguments that were ignored or not counted."""
    if isinstance(arguments, str):
        said = f"arguments is {arguments[:40]!r}, must be a list of words"
        raise ValueError(f"{said}: words(line) makes one of a text")
    devices, rest = launched(arguments, devices)
    given = MegatronGiven(rest)
    t = given.whole("tensor-model-parallel-size", 1)
    shape = _shape(given, t)
    layout, notes = _layout(given, shape, t, devices)
    batch = given.whole("global-batch-size", layout.microbatch * layout.d)
    if batch % (layout.d * layout.microbatch):
        rule = f"must be a multiple of --micro-batch-size * d = {layout.microbatch} * {layout.d}"
        raise ValueError(f"--global-batch-size is {batch}, {rule}, as devices is {devices}")
    if "fp8-format" in given:
        dtype = "fp8"
    else:
        dtype = "bf16" if "bf16" in given else "fp16" if "fp16" in given else "fp32"
    return MegatronLine(shape, layout, batch, dtype, given.ignored, (*given.uncounted, *notes))


# --- reading the model ----------------------------------------------------------------------------


def _shape(given: MegatronGiven, t: int) -> ModelShape:
    """The model of a line: one of SHAPES where only the norms outside its layers could differ.

    There the papers decide what counts. Elsewhere the norm behind the layers counts with RMSNorm.
    """
    layers, width = given.needed("num-layers", "encoder-num-layers"), given.needed("hidden-size")
    heads, seq = given.needed("num-attention-heads"), given.needed("seq-length")
    biased = "disable-bias-linear" not in given
    root = given.choice("normalization", ("LayerNorm", "RMSNorm"), "LayerNorm") == "RMSNorm"
    fields = {
        "layers": layers,
        "width": width,
        "heads": heads,
        "vocab": _vocab(given, t),
        "seq": seq,
        "gated": "swiglu" in given or "quick-geglu" in given,
        "tied": "untie-embeddings-and-output-weights" not in given,
        "bias": biased,
        "norms": int(root),
        "norm_vectors": None if root != biased else 1 if root else 2,
        "head_norms": "qk-layernorm" in given,
        "sinks": given.text("softmax-type") == "learnable",
        "positions": _positions(given, seq),
    }
    if not biased and "add-qkv-bias" in given:
        fields["biased"] = ("qkv",)
    fields["hidden"] = _hidden(given, width)
    fields["kv_heads"] = _groups(given)
    fields |= _window(given, layers) | _experts(given, layers, fields["hidden"] or 4 * width)
    shape = ModelShape(**fields, **_heads(given, width, heads))
    known = (other for other in SHAPES.values() if replace(shape, norms=other.norms) == other)
    return next(known, shape)


def _vocab(given: MegatronGiven, t: int) -> int:
    """The rows of the embedding, with those that Megatron-LM adds so that they deal out evenly."""
    kind = given.text("tokenizer-type")
    size = given.whole("padded-vocab-size")
    if size is None:
        size = given.whole("vocab-size", TOKENIZERS.get(kind))
        if size is None:
            of = f"{kind} has it in a file" if kind else "no tokenizer says it"
            raise ValueError(f"--vocab-size is missing, must be given: {of}")
        size += kind == "NullTokenizer"  # which adds one that ends a document
        size += given.whole("vocab-extra-ids", 0, least=0)
    each = given.whole("make-vocab-size-divisible-by", PAD) * t
    return size if "padded-vocab-size" in given else -(-size // each) * each


def _positions(given: MegatronGiven, seq: int) -> int | None:
    """How many positions are learned; None where they are as many as a sequence has tokens."""
    most = given.whole("max-position-embeddings", seq)
    if most < seq:
        raise ValueError(f"--max-position-embeddings is {most}, must be at least {seq} tokens")
    kind = given.choice("position-embedding-type", POSITIONS, "learned_absolute")
    turned = "use-rotary-position-embeddings" in given or "no-position-embedding" in given
    if turned or kind != "learned_absolute":
        return 0
    return None if most == seq else most


def _hidden(given: MegatronGiven, width: int) -> int | None:
    """The width of the MLP; with --swiglu two thirds of four times the model's, as it defaults."""
    gated = "swiglu" in given
    hidden = given.whole("ffn-hidden-size")
    if hidden is None:
        return int((4 * width * 2 / 3) / 64) * 64 if gated else None
    return None if gated and hidden == 4 * width else hidden


def _groups(given: MegatronGiven) -> int | None:
    """The heads of keys and values, which take two arguments."""
    if "group-query-attention" in given:
        return given.whole("num-query-groups", 1)
    if "num-query-groups" in given:
        rule = "has no effect without --group-query-attention: must be given with it, or not at all"
        raise ValueError(f"--num-query-groups {rule}")
    return None


def _heads(given: MegatronGiven, width: int, heads: int) -> dict:
    """The width of a head, and latent attention."""
    if "multi-latent-attention" in given:
        rope = given.whole("qk-pos-emb-head-dim", 64)
        value, query = given.whole("v-head-dim", 128), given.whole("q-lora-rank")
        latent = Latent(given.whole("kv-lora-rank", 32), rope, value, query)
        return {"head": given.whole("qk-head-dim", 128) + rope, "latent": latent}
    head = given.whole("kv-channels")
    return {"head": None if head is None or head * heads == width else head}


def _window(given: MegatronGiven, layers: int) -> dict:
    """Layers that look back a window: --window-size (left,right), of all or of a pattern's."""
    text = given.text("window-size")
    if text is None:
        return {}
    sides = re.fullmatch(r"\(?\s*(\d+)\s*,\s*(-?\d+)\s*\)?", text)
    if not sides:
        raise ValueError(f"--window-size is {text!r}, must be two numbers such as 127,0")
    skipped = given.text("window-attn-skip-freq")
    with_it = layers if skipped is None else sum(pattern("window-attn-skip-freq", skipped, layers))
    return {"window": int(sides[1]) + 1, "windowed": with_it} if with_it else {}


def _experts(given: MegatronGiven, layers: int, hidden: int) -> dict:
    """Experts, in all layers or in those of a pattern."""
    count = given.whole("num-experts", 0, least=0)
    if not count:
        return {}
    where = pattern("moe-layer-freq", given.text("moe-layer-freq", "1"), layers, every=0)
    each = given.whole("moe-ffn-hidden-size", hidden)
    shared = given.whole("moe-shared-expert-intermediate-size", 0, least=0)
    sizes = count, given.whole("moe-router-topk", 2), each, shared
    some = sum(where) if sum(where) < layers else None
    if some == 0:
        return {}
    return {"experts": Experts(*sizes, "moe-shared-expert-gate" in given, some)}


# --- reading the layout ---------------------------------------------------------------------------


def _layout(
    given: MegatronGiven, shape: ModelShape, t: int, devices: int | None
) -> tuple[Layout, list[str]]:
    """The layout, and what of it the plan counts in another way."""
    p, c = given.whole("pipeline-model-parallel-size", 1), given.whole("context-parallel-size", 1)
    if devices is None:
        rule = "must be given, or --nproc-per-node and --nnodes before the program's name"
        raise ValueError(f"devices is None, {rule}: d follows from them")
    if devices % (p * t * c):
        raise ValueError(f"devices is {devices}, must be a multiple of p * t * c = {p * t * c}")
    recompute, notes = _recompute(given)
    v, more = _stages(given, shape.layers, p)
    zero = _zero(given, p)
    layout = Layout(
        p=p, t=t, d=devices // (p * t * c), c=c, e=_expert_ranks(given, shape, t), v=v,
        microbatch=given.needed("micro-batch-size"), zero=zero, recompute=recompute,
        sequence_parallel="sequence-parallel" in given and t > 1,
    )  # fmt: skip
    return layout, notes + more


def _expert_ranks(given: MegatronGiven, shape: ModelShape, t: int) -> int:
    """e: how many ranks have a layer's experts between them, each cut over the t tensor ranks."""
    e = given.whole("expert-model-parallel-size", 1)
    if e > 1 and shape.experts is None:
        raise ValueError(f"--expert-model-parallel-size is {e}, must be 1 without --num-experts")
    if shape.experts and shape.experts.count % e:
        rule = f"must divide --num-experts = {shape.experts.count}"
        raise ValueError(f"--expert-model-parallel-size is {e}, {rule}")
    within = given.whole("expert-tensor-parallel-size", t)
    if shape.experts and within != t:
        rule = f"must be {t}, as --tensor-model-parallel-size: a Layout cuts experts alike"
        raise ValueError(f"--expert-tensor-parallel-size is {within}, {rule}")
    return e


def _zero(given: MegatronGiven, p: int) -> int:
    """The stage of ZeRO that the distributed optimizer and the two forms of FSDP come to."""
    for name in ("use-torch-fsdp2", "use-megatron-fsdp"):
        if name in given and p > 1:
            raise ValueError(f"--{name} is given with a pipeline of {p}, must go without one")
    strategy = given.choice("data-parallel-sharding-strategy", STRATEGIES, "no_shard")
    if "use-torch-fsdp2" in given:
        return 2 if "torch-fsdp2-no-reshard-after-forward" in given else 3
    if "use-megatron-fsdp" in given:
        return STRATEGIES.index(strategy)
    if strategy != "no_shard":
        raise ValueError("--data-parallel-sharding-strategy must be given with --use-megatron-fsdp")
    return int("use-distributed-optimizer" in given)


def _recompute(given: MegatronGiven) -> tuple[str, list[str]]:
    """What is recomputed, by any of its arguments."""
    granularity = given.choice("recompute-granularity", ("full", "selective"))
    method = given.choice("recompute-method", ("uniform", "block"))
    if "recompute-activations" in given:
        granularity = "selective"
    if granularity == "selective" and method:
        raise ValueError("--recompute-method must be left out with selective recomputing")
    if granularity != "full":
        return granularity or "none", []
    if method is None:
        raise ValueError("--recompute-method is missing, must be given with full recomputing")
    each = given.whole("recompute-num-layers", 1)
    if method == "uniform" and each == 1:
        return "full", []
    said = f"--recompute-method {method} --recompute-num-layers {each}"
    return "full", [f"{said}: counted as each layer recomputed, from its own input"]


def _stages(given: MegatronGiven, layers: int, p: int) -> tuple[int, list[str]]:
    """v, by any of the three arguments that say it, with layers that need not divide."""
    ways = {
        "num-layers-per-virtual-pipeline-stage",
        "num-virtual-stages-per-pipeline-rank",
        "pipeline-model-parallel-layout",
    }
    said = sorted(f"--{way}" for way in ways if way in given)
    if len(said) > 1:
        raise ValueError(f"{' and '.join(said)} say the same: give one of them")
    if "pipeline-model-parallel-layout" in given:
        return _of_text(given.text("pipeline-model-parallel-layout"), layers, p)
    first = given.whole("decoder-first-pipeline-num-layers")
    last = given.whole("decoder-last-pipeline-num-layers")
    counted = layers + sum(
        f"account-for-{part}-in-pipeline-split" in given for part in ("embedding", "loss")
    )
    if first is None and last is None and counted % p:
        what = f"--num-layers with embedding and loss is {counted}"
        raise ValueError(f"{what}, must be a multiple of --pipeline-model-parallel-size = {p}")
    each = given.whole("num-layers-per-virtual-pipeline-stage")
    v = given.whole("num-virtual-stages-per-pipeline-rank", 1)
    if each is not None:
        if (counted // p) % each:
            rule = f"must divide the {counted // p} layers of a rank"
            raise ValueError(f"--num-layers-per-virtual-pipeline-stage is {each}, {rule}")
        v = counted // p // each
    if p == 1 and v > 1:
        raise ValueError(f"virtual stages are {v} on each rank, must be 1 without a pipeline")
    ends = [size for size in (first, last) if size is not None]
    if not ends or p <= len(ends):
        return v, []
    between = -(-(layers - sum(ends)) // (p - len(ends)))
    return v, _uneven("--decoder-first/last-pipeline-num-layers", max(*ends, between), layers, p)


def _of_text(text: str, layers: int, p: int) -> tuple[int, list[str]]:
    """v of a layout such as Ettt|(tt|)*29,m|L."""
    name, plain = "--pipeline-model-parallel-layout", text.replace(",", "").replace(" ", "")
    for repeated in (r"\(([^()]+)\)\*(\d{1,4})", r"([^()])\*(\d{1,4})"):
        plain = re.sub(repeated, lambda match: match[1] * int(match[2]), plain)
    stages = plain.split("|")
    if set(plain) - set("EtmL|"):
        raise ValueError(f"{name} is {text!r}, must be of E, t, m, L, |, ( ) and *")
    if plain.count("t") != layers:
        raise ValueError(f"{name} has {plain.count('t')} layers, must have --num-layers = {layers}")
    if len(stages) % p:
        raise ValueError(f"{name} has {len(stages)} stages, must be a multiple of p = {p}")
    largest = max(stage.count("t") for stage in stages)
    return len(stages) // p, _uneven(name, largest, layers, len(stages))


def _uneven(name: str, largest: int, layers: int, stages: int) -> list[str]:
    """A note where the largest stage has more layers than even stages would."""
    even = -(-layers // stages)
    if largest <= even:
        return []
    return [f"{name}: the largest stage has {largest} layers, counted as {even}"]
