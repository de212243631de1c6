"""A published Longformer, as Hugging Face writes it, read into ours.

Their attention_window counts both sides: half of it is ours.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from weft.nn.published import fill, read
from weft.nn.sparse.model import Attention, Longformer, LongformerConfig
from weft.plan.arguments import row, whole
from weft.ref.sparse import longformer

BLOCK = {  # of a layer, their name -> ours
    "attention.self.query": "mixer.q",
    "attention.self.key": "mixer.k",
    "attention.self.value": "mixer.v",
    "attention.self.query_global": "mixer.global_q",
    "attention.self.key_global": "mixer.global_k",
    "attention.self.value_global": "mixer.global_v",
    "attention.output.dense": "mixer.out",
    "attention.output.LayerNorm": "norm_mixer",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "norm_mlp",
}
WHOLE = {
    "embeddings.word_embeddings": "tokens",
    "embeddings.position_embeddings": "positions",
    "embeddings.LayerNorm": "norm",
    "lm_head.dense": "scores.dense",
    "lm_head.layer_norm": "scores.norm",
    "lm_head.decoder": "scores.decoder",
}
TYPES = "embeddings.token_type_embeddings.weight"
NAMED = {"model_type": "longformer", "position_embedding_type": "absolute"}


def load(folder: str | Path, attention: Attention = longformer) -> Longformer:
    """The model that a folder with config.json and model.safetensors describes, in its dtype.

    A LongformerForMaskedLM gives its logits, a LongformerModel its last hidden states. Their
    pooler, which reads the first token alone, is left out; so is the embedding of types other
    than 0. ValueError names what is neither, FileNotFoundError a file that is missing.
    """
    said, weights = read(folder)
    weights = {name.removeprefix("longformer."): x for name, x in weights.items()}
    if TYPES not in weights:
        raise ValueError(f"{folder} has no weight {TYPES}")
    scores = any(name.startswith("lm_head.") for name in weights)
    tied = said.get("tie_word_embeddings", True) and "lm_head.decoder.weight" not in weights
    model = Longformer(config(said, scores, tied), attention)
    found = renamed(weights, tied)
    fill(model, found, folder)
    return model.to(found["tokens.weight"].dtype)


def config(said: dict[str, Any], scores: bool, tied: bool) -> LongformerConfig:
    """Our sizes from the config's."""
    for name, only in NAMED.items():
        if said.get(name, None if name == "model_type" else only) != only:
            raise ValueError(f"{name} is {said.get(name)!r} in config.json, must be {only!r}")
    try:
        layers = whole("num_hidden_layers", said["num_hidden_layers"])
        return LongformerConfig(
            layers=layers,
            width=said["hidden_size"],
            heads=said["num_attention_heads"],
            vocab=said["vocab_size"],
            windows=windows(said["attention_window"], layers),
            hidden=said["intermediate_size"],
            positions=said["max_position_embeddings"],
            pad=said["pad_token_id"],
            scores=scores,
            tied=tied,
            activation=said["hidden_act"],
            epsilon=said["layer_norm_eps"],
        )
    except KeyError as error:
        raise ValueError(f"config.json has no {error.args[0]}") from error


def windows(attention_window: int | Sequence[int], layers: int) -> tuple[int, ...]:
    """Keys on one side, layer by layer; theirs is even, for one layer or for all."""
    if isinstance(attention_window, int):
        attention_window = [attention_window] * layers
    both = [whole("attention_window", one, 2) for one in row("attention_window", attention_window)]
    for one in both:
        if one % 2:
            raise ValueError(f"attention_window is {one}, must be even: half of it on each side")
    return tuple(one // 2 for one in both)


def renamed(weights: dict[str, Tensor], tied: bool) -> dict[str, Tensor]:
    """Weights by our names.

    Tokens are all of type 0, so that its embedding is a part of every position's. Of two names of
    the scores' bias, lm_head.decoder.bias is what counts where it was written.
    """
    left_out = ("pooler.", "embeddings.position_ids")
    found = {ours(name): x for name, x in weights.items() if not name.startswith(left_out)}
    first_type = found.pop(TYPES)[0]
    if "positions.weight" in found:
        found["positions.weight"] = found["positions.weight"] + first_type
    if "lm_head.bias" in found:
        found.setdefault("scores.decoder.bias", found.pop("lm_head.bias"))
    if tied and "tokens.weight" in found and "scores.dense.weight" in found:
        found["scores.decoder.weight"] = found["tokens.weight"]
    return found


def ours(name: str) -> str:
    """Our name of a weight; theirs where we have none, which `fill` then refuses."""
    stem, _, kind = name.rpartition(".")
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}"
    head, _, rest = stem.partition("encoder.layer.")
    layer, _, inner = rest.partition(".")
    if head or not layer.isdigit() or inner not in BLOCK:
        return name
    return f"blocks.{layer}.{BLOCK[inner]}.{kind}"
