"""A published RecurrentGemma, as Hugging Face writes it, read into a Griffin."""

from pathlib import Path
from typing import Any

from weft.nn.griffin.mixers import Scan
from weft.nn.griffin.model import Griffin, GriffinConfig
from weft.nn.published import fill, read
from weft.ref.griffin import scan

BLOCK = {  # of a block, their name -> ours
    "temporal_pre_norm": "norm_mixer",
    "channel_pre_norm": "norm_mlp",
    "mlp_block.gate_proj": "gate",
    "mlp_block.up_proj": "up",
    "mlp_block.down_proj": "down",
    "temporal_block.linear_y": "mixer.y",
    "temporal_block.linear_x": "mixer.x",
    "temporal_block.linear_out": "mixer.out",
    "temporal_block.conv_1d.weight": "mixer.taps_weight",
    "temporal_block.conv_1d.bias": "mixer.taps_bias",
    "temporal_block.rg_lru.recurrent_param": "mixer.a_param",
    "temporal_block.rg_lru.input_gate_weight": "mixer.input_gate.weight",
    "temporal_block.rg_lru.input_gate_bias": "mixer.input_gate.bias",
    "temporal_block.rg_lru.recurrent_gate_weight": "mixer.recurrence_gate.weight",
    "temporal_block.rg_lru.recurrent_gate_bias": "mixer.recurrence_gate.bias",
    "temporal_block.q_proj": "mixer.q",
    "temporal_block.k_proj": "mixer.k",
    "temporal_block.v_proj": "mixer.v",
    "temporal_block.o_proj": "mixer.out",
}
WHOLE = {"model.embed_tokens.weight": "embedding.weight", "model.final_norm.weight": "norm.weight"}


def load(folder: str | Path, scan: Scan = scan) -> Griffin:
    """The model that a folder with config.json and model.safetensors describes, in its dtype.

    ValueError names what of it is no RecurrentGemma, FileNotFoundError a file that is missing.
    """
    said, weights = read(folder)
    model = Griffin(config(said), scan)
    first = weights.get("model.embed_tokens.weight")
    weights.pop("lm_head.weight", None)  # the embeddings again, where it was written at all
    fill(model, {ours(name): tensor for name, tensor in weights.items()}, folder)
    return model if first is None else model.to(first.dtype)


def config(said: dict[str, Any]) -> GriffinConfig:
    """Our sizes from the config's; its MLP width is both branches'."""
    kind = said.get("model_type")
    if kind != "recurrent_gemma":
        raise ValueError(f"model_type is {kind!r} in config.json, must be 'recurrent_gemma'")
    wanted = {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}
    for name, only in wanted.items():
        if said.get(name, only) != only:
            raise ValueError(f"{name} is {said[name]!r} in config.json, must be {only!r}")
    rope = said.get("rope_parameters") or {}
    try:
        return GriffinConfig(
            layers=said["num_hidden_layers"],
            width=said["hidden_size"],
            heads=said["num_attention_heads"],
            kv_heads=said.get("num_key_value_heads") or said["num_attention_heads"],
            vocab=said["vocab_size"],
            window=said["attention_window_size"],
            recurrent=said.get("lru_width"),
            hidden=said["intermediate_size"] // 2,
            taps=said["conv1d_width"],
            pattern=tuple(said["block_types"]),
            soft_cap=said["logits_soft_cap"],
            theta=rope.get("rope_theta", said.get("rope_theta", 10000.0)),
            rotated=rope.get("partial_rotary_factor", said.get("partial_rotary_factor", 0.5)),
            epsilon=said["rms_norm_eps"],
        )
    except KeyError as error:
        raise ValueError(f"config.json has no {error.args[0]}") from error


def ours(name: str) -> str:
    """Our name of a weight; theirs where we have none, which `fill` then refuses."""
    if name in WHOLE:
        return WHOLE[name]
    head, _, rest = name.partition("model.layers.")
    layer, _, inner = rest.partition(".")
    if head or not layer.isdigit():
        return name
    for theirs, own in BLOCK.items():
        if inner == theirs or inner.startswith(theirs + "."):
            return f"blocks.{layer}.{own}{inner[len(theirs) :]}"
    return name
