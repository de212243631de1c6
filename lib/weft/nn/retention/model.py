"""RetNet the model: retention and a gated MLP in turn; it trains at once and decodes by a state.

Names of parameters are torchscale's, so a state dict of its `RetNetDecoder` fits as it is.
Dims: B batch, T time, D width, N vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, relu, silu

from weft.nn import published
from weft.nn.retention.layer import MultiScaleRetention, State
from weft.plan.arguments import amount, chosen, sizes
from weft.plan.linear import DECAYS

ACTIVATIONS = {"gelu": gelu, "relu": relu, "swish": silu}


@dataclass(frozen=True)
class RetNetConfig:
    """The fields of torchscale's RetNetConfig that change what a trained RetNet says.

    Names and defaults are torchscale's, but for `vocab_size`, which must be given. `of` takes
    them from a mapping with all fields.
    """

    vocab_size: int
    decoder_embed_dim: int = 768
    decoder_value_embed_dim: int = 1280
    decoder_retention_heads: int = 3
    decoder_ffn_embed_dim: int = 1280
    decoder_layers: int = 12
    decoder_normalize_before: bool = True
    activation_fn: str = "gelu"
    no_scale_embedding: bool = True
    layernorm_embedding: bool = False
    deepnorm: bool = False
    share_decoder_input_output_embed: bool = False
    layernorm_eps: float = 1e-6

    def __post_init__(self):
        given = vars(self)
        sizes(**{name: given[name] for name in given if name.endswith(("dim", "heads", "layers"))})
        sizes(vocab_size=self.vocab_size)
        chosen("activation_fn", self.activation_fn, ACTIVATIONS)
        amount("layernorm_eps", self.layernorm_eps)

    @property
    def alpha(self) -> float:
        """What the residual is multiplied by, above 1 with DeepNorm."""
        return (2 * self.decoder_layers) ** 0.25 if self.deepnorm else 1.0

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> "RetNetConfig":
        """From a mapping as torchscale's; ValueError for experts and other models than this."""
        for name in ("moe_freq", "multiway", "no_output_layer"):
            if mapping.get(name):
                raise ValueError(f"{name} is {mapping[name]!r}, must be 0 or absent for a RetNet")
        if "vocab_size" not in mapping:
            raise ValueError("vocab_size is absent, must be given")
        known = [field.name for field in fields(cls)]
        return cls(**{name: mapping[name] for name in known if name in mapping})


class RootMeanSquare(nn.Module):
    """Scale each token to a mean square of 1, then by a weight for each channel: RMSNorm."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return normed.to(x.dtype) * self.weight


class GatedMlp(nn.Module):
    """fc2(activation(fc1 x) * gate x)."""

    def __init__(self, width: int, hidden: int, activation: str):
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.fc1, self.gate = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.fc2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x)) * self.gate(x))


class RetNetBlock(nn.Module):
    """Retention, then the MLP; each reads a norm and is added, or is added and then normed."""

    def __init__(self, config: RetNetConfig):
        super().__init__()
        width, eps = config.decoder_embed_dim, config.layernorm_eps
        self.before, self.alpha = config.decoder_normalize_before, config.alpha
        self.retention = MultiScaleRetention(
            width, config.decoder_retention_heads, config.decoder_value_embed_dim, eps
        )
        self.retention_layer_norm = RootMeanSquare(width, eps)
        self.ffn = GatedMlp(width, config.decoder_ffn_embed_dim, config.activation_fn)
        self.final_layer_norm = RootMeanSquare(width, eps)

    def forward(self, x_BTD: Tensor, form: str, state: State | None, chunk: int):
        """[B, T, D] and the state after the last token."""
        y, state = self.retention(
            self._in(self.retention_layer_norm, x_BTD), form, state, True, chunk
        )
        x_BTD = self._out(self.retention_layer_norm, x_BTD * self.alpha + y)
        y = self.ffn(self._in(self.final_layer_norm, x_BTD))
        return self._out(self.final_layer_norm, x_BTD * self.alpha + y), state

    def _in(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.before else x

    def _out(self, norm: nn.Module, x: Tensor) -> Tensor:
        return x if self.before else norm(x)


class RetNet(nn.Module):
    """Scores for the token after each one: model(tokens [B, T]) gives [B, T, N].

    With `final` there is a second result, the state after the last token: a tuple with one state
    for each layer, its size the same for every T. `.step(token [B], state)` goes on by one token,
    from no state at first. All forms give the same scores.
    """

    def __init__(self, config: RetNetConfig):
        super().__init__()
        self.config = config
        width, eps = config.decoder_embed_dim, config.layernorm_eps
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.output_projection = nn.Linear(width, config.vocab_size, bias=False)
        for each in (self.embed_tokens, self.output_projection):
            nn.init.normal_(each.weight, std=width**-0.5)
        if config.share_decoder_input_output_embed:
            self.output_projection.weight = self.embed_tokens.weight
        self.layers = nn.ModuleList(RetNetBlock(config) for _ in range(config.decoder_layers))
        on, before = config.layernorm_embedding, config.decoder_normalize_before
        self.layernorm_embedding = RootMeanSquare(width, eps) if on else nn.Identity()
        self.layer_norm = RootMeanSquare(width, eps) if before else nn.Identity()

    def forward(
        self,
        tokens_BT: Tensor,
        form: str = "parallel",
        initial: tuple[State, ...] | None = None,
        final: bool = False,
        chunk: int = 64,
    ) -> Tensor | tuple[Tensor, tuple[State, ...]]:
        """`form` and `chunk` as in MultiScaleRetention."""
        x_BTD = embedding(tokens_BT, self.embed_tokens.weight)
        if not self.config.no_scale_embedding:
            x_BTD = x_BTD * x_BTD.shape[-1] ** 0.5
        x_BTD, states = self.layernorm_embedding(x_BTD), []
        before = initial or (None,) * len(self.layers)
        for layer, state in zip(self.layers, before, strict=True):
            x_BTD, state = layer(x_BTD, form, state, chunk)
            states.append(state)
        scores_BTN = self.output_projection(self.layer_norm(x_BTD))
        return (scores_BTN, tuple(states)) if final else scores_BTN

    def step(self, token_B: Tensor, state: tuple[State, ...] | None = None):
        """Scores [B, N] for the token after this one, and the state for the next step."""
        scores_BTN, state = self(token_B[:, None], "recurrent", state, final=True)
        return scores_BTN[:, 0], state


def load(folder: str | Path) -> RetNet:
    """A RetNet as torchscale's: RetNetConfig's fields in config.json, and model.safetensors.

    It says what torchscale's says in its parallel form, the one that it trains in.
    """
    config, weights = published.read(folder)
    model = RetNet(RetNetConfig.of(config))
    _check_decays(weights, model.config.decoder_retention_heads)
    kept = {name: x for name, x in weights.items() if not name.startswith("retnet_rel_pos.")}
    if model.config.share_decoder_input_output_embed and "embed_tokens.weight" in kept:
        kept["output_projection.weight"] = kept["embed_tokens.weight"]
    published.fill(model, kept, folder)
    return model


def _check_decays(tensors: Mapping[str, Tensor], H: int) -> None:
    """torchscale keeps the decays' logarithms with the weights; ours are computed."""
    logs = tensors.get("retnet_rel_pos.decay")
    if logs is not None and not torch.allclose(
        logs.double().exp(), torch.tensor(DECAYS(H)).double()
    ):
        raise ValueError(f"retnet_rel_pos.decay is {logs.tolist()}, must be of RetNet's decays")
