"""A published SwitchTransformers, as Hugging Face writes it, read into a Switch.

What transformers itself makes of tokens beyond an expert's capacity has changed. It drops them,
to 0 and counted in each sequence as here, in its releases 4.52 to 4.57 and from 5.18 on. Up to
4.51 a dropped token gave its own input times the router's probability, and 5.0 to 5.17 dropped
nothing. All agree with this where no expert is chosen more often than its capacity.
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.nn.experts.layer import Kernel
from weft.nn.experts.model import Switch, SwitchConfig
from weft.nn.published import fill, read
from weft.plan.arguments import whole

WHOLE = {  # their name -> ours
    "shared.weight": "embedding.weight",
    "encoder.final_layer_norm.weight": "encoder.norm.weight",
    "decoder.final_layer_norm.weight": "decoder.norm.weight",
} | {
    f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight": f"{stack}.bias.weight"
    for stack in ("encoder", "decoder")
}
PARTS = {"encoder": ["attention", "mlp"], "decoder": ["attention", "cross", "mlp"]}
INNER = {  # of a part of a block
    "attention": {f"SelfAttention.{name}": name for name in "qkv"} | {"SelfAttention.o": "out"},
    "cross": {f"EncDecAttention.{name}": name for name in "qkv"} | {"EncDecAttention.o": "out"},
    "mlp": {"mlp.wi": "up", "mlp.wo": "down", "mlp.router.classifier": "router"},
}
BLOCK = re.compile(r"(encoder|decoder)\.block\.(\d+)\.layer\.(\d+)\.(.+)\.weight")
EXPERT = re.compile(r"(.+\.mlp)\.experts\.expert_(\d+)\.(wi|wo)\.weight")
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
ONLY = {
    "dense_act_fn": "relu",
    "is_gated_act": False,
    "num_selected_experts": 1,
    "router_bias": False,
    "router_dtype": "float32",
    "tie_word_embeddings": True,
}


def load(folder: str | Path, kernel: Kernel | None = None) -> Switch:
    """The model that a folder with config.json and model.safetensors describes, in its dtype.

    ValueError names what of it is no such SwitchTransformers, FileNotFoundError a missing file.
    """
    said, weights = read(folder)
    model = Switch(config(said), kernel)
    first = weights.get("shared.weight")
    for name in COPIES:
        copy = weights.pop(name, first)
        if first is not None and not torch.equal(copy, first):
            raise ValueError(f"{name} is not shared.weight in {folder}, must be the same")
    fill(model, renamed(weights, folder), folder)
    return model if first is None else model.to(first.dtype)


def config(said: dict[str, Any]) -> SwitchConfig:
    """Our sizes from the config's."""
    kind = said.get("model_type")
    if kind != "switch_transformers":
        raise ValueError(f"model_type is {kind!r} in config.json, must be 'switch_transformers'")
    for name, only in ONLY.items():
        if said.get(name, only) != only:
            raise ValueError(f"{name} is {said[name]!r} in config.json, must be {only!r}")
    try:
        layers, decoder_layers = said["num_layers"], said.get("num_decoder_layers")
        decoder_layers = layers if decoder_layers is None else decoder_layers
        return SwitchConfig(
            layers=layers,
            decoder_layers=decoder_layers,
            width=said["d_model"],
            heads=said["num_heads"],
            head_width=said["d_kv"],
            hidden=said["d_ff"],
            vocab=said["vocab_size"],
            experts=said["num_experts"],
            capacity=whole("expert_capacity", said["expert_capacity"]),
            step=step(said, "encoder", layers),
            decoder_step=step(said, "decoder", decoder_layers),
            buckets=said["relative_attention_num_buckets"],
            farthest=said["relative_attention_max_distance"],
            epsilon=said["layer_norm_epsilon"],
        )
    except KeyError as error:
        raise ValueError(f"config.json has no {error.args[0]}") from error


def step(said: dict[str, Any], stack: str, layers: int) -> int:
    """How far apart the layers with experts are, by transformers' rule where it is not given.

    By it a stack of several layers that is to have none has one.
    """
    if f"{stack}_sparse_step" in said:
        return said[f"{stack}_sparse_step"]
    name = f"num_sparse_{stack}_layers"
    sparse = whole(name, said[name], 0)
    return whole("num_layers", layers) // sparse if sparse else layers


def renamed(weights: dict[str, Tensor], folder: str | Path) -> dict[str, Tensor]:
    """Weights by our names: a layer's experts as one, their matrices and routers transposed."""
    found, layers = {}, defaultdict(dict)
    for name, x in weights.items():
        expert = EXPERT.fullmatch(name)
        own = ours(f"{expert[1]}.{expert[3]}.weight" if expert else name)
        if expert:
            layers[own.removesuffix(".weight")][int(expert[2])] = x.transpose(0, -1)
        elif own.endswith(".mlp.router.weight"):
            found[own.removesuffix(".weight")] = x.transpose(0, -1)
        else:
            found[own] = x
    for own, experts in layers.items():
        numbers, shapes = sorted(experts), {tuple(x.shape) for x in experts.values()}
        if numbers != list(range(len(experts))) or len(shapes) > 1:
            what = f"experts {numbers} of shapes {sorted(shapes)}"
            raise ValueError(f"{own} has {what} in {folder}, must be all from 0 on, of one shape")
        found[own] = torch.stack([experts[e] for e in numbers])
    return found


def ours(name: str) -> str:
    """Our name of a weight; theirs where we have none, which `fill` then refuses."""
    inside = BLOCK.fullmatch(name)
    if name in WHOLE or not inside:
        return WHOLE.get(name, name)
    stack, block, layer, inner = inside.groups()
    part = PARTS[stack][int(layer)] if int(layer) < len(PARTS[stack]) else ""
    if part and inner == "layer_norm":
        return f"{stack}.blocks.{block}.norm_{part}.weight"
    if inner in INNER.get(part, {}):
        return f"{stack}.blocks.{block}.{part}.{INNER[part][inner]}.weight"
    return name
