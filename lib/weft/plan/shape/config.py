"""The shape of a model from the config.json that lies beside its weights on Hugging Face."""

from collections.abc import Mapping
from typing import Any

from weft.plan.shape.model import ModelShape

# What we need -> the key that says it, by the kind of model.
GPT2 = {
    "layers": "n_layer",
    "width": "n_embd",
    "heads": "n_head",
    "vocab": "vocab_size",
    "seq": "n_positions",
}
LLAMA = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "vocab": "vocab_size",
    "seq": "max_position_embeddings",
    "hidden": "intermediate_size",
}
KINDS = {"gpt2": GPT2, "llama": LLAMA, "mistral": LLAMA}  # by model_type
CHANGED = "attention_bias", "mlp_bias"  # true, they add what a ModelShape cannot say


def of_config(config: Mapping[str, Any]) -> ModelShape:
    """The ModelShape of a GPT-2, Llama or Mistral, from its config.json as a mapping.

    `model_type` says which; where it is missing, the keys do. ValueError for any other kind of
    model, since one that differs in a key we do not know would be counted wrong.

    >>> of_config({"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257,
    ...            "n_positions": 1024}).params
    124439808
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"config is a {type(config).__name__}, must be a mapping of keys")
    kind = config.get("model_type", "gpt2" if "n_embd" in config else "llama")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"model_type is {kind!r}, must be one of {', '.join(KINDS)}")
    keys = KINDS[kind]
    missing = [key for key in keys.values() if config.get(key) is None]
    if missing:
        raise ValueError(f"config has no {', '.join(missing)}, must have them for a {kind} model")
    for key in CHANGED:
        if config.get(key):
            raise ValueError(f"{key} is {config[key]!r}, must be false: it is not counted here")
    given = {name: config[key] for name, key in keys.items()}
    if keys is GPT2:
        given["hidden"] = config.get("n_inner")
        return ModelShape(**given, tied=_tied(config, default=True), norms=1)
    shape = ModelShape(
        **given,
        kv_heads=config.get("num_key_value_heads"),
        gated=True,
        bias=False,
        tied=_tied(config, default=False),
        positions=0,
        norms=1,
    )
    if config.get("head_dim") not in (None, shape.key_width):
        rule = f"must be hidden_size / num_attention_heads = {shape.key_width}"
        raise ValueError(f"head_dim is {config['head_dim']!r}, {rule}")
    return shape


def _tied(config: Mapping[str, Any], default: bool) -> bool:
    tied = config.get("tie_word_embeddings", default)
    if not isinstance(tied, bool):
        raise ValueError(f"tie_word_embeddings is {tied!r}, must be true or false")
    return tied
