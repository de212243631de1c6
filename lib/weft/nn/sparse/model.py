"""Longformer the model: an encoder whose layers see a window, and some tokens everything.

Dims: B batch, T time, D width, H heads, K = D / H width of one head, N vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from weft.plan.arguments import amount, chosen, row, sizes, whole
from weft.ref.sparse import longformer

Attention = Callable[..., Tensor]  # with weft.ref.sparse.longformer's face
ACTIVATIONS = {"gelu": gelu, "relu": relu, "silu": silu}


@dataclass(frozen=True)
class LongformerConfig:
    """Sizes: `layers` of `width`, each with a window of its own; the defaults are a small model.

    `windows` has one number for each layer: how many keys a query sees on each side of itself.
    `dilations` has for each layer one number for each head: how far apart those keys are; 1
    everywhere if empty. `causal` hides what is later. `hidden` is the width of the MLP, four
    times `width` if None. `positions` is how many position embeddings there are, and `pad` the
    token that has none of its own: it gets the embedding number `pad`, and the others those from
    pad + 1 on. With `pad` None every token counts, from 0 on. Without `scores` the model gives
    hidden states; with `tied` the scores' last matrix is that of the token embeddings. ValueError
    names what does not fit.
    """

    layers: int = 2
    width: int = 64
    heads: int = 4
    vocab: int = 256
    windows: tuple[int, ...] = (8, 16)
    dilations: tuple[tuple[int, ...], ...] = ()
    causal: bool = False
    hidden: int | None = None
    positions: int = 512
    pad: int | None = None
    scores: bool = True
    tied: bool = True
    activation: str = "gelu"
    epsilon: float = 1e-5

    def __post_init__(self):
        sizes(layers=self.layers, width=self.width, heads=self.heads, vocab=self.vocab)
        sizes(positions=self.positions, hidden=1 if self.hidden is None else self.hidden)
        if self.width % self.heads:
            raise ValueError(f"width is {self.width}, must be a multiple of heads = {self.heads}")
        self._one_each("windows", self.windows, "layers", self.layers)
        for window in self.windows:
            whole("windows", window, 0)
        if self.dilations:
            self._one_each("dilations", self.dilations, "layers", self.layers)
        for one in self.dilations:
            self._one_each("dilations", one, "heads", self.heads)
            for dilation in one:
                whole("dilations", dilation)
        if self.pad is not None:
            whole("pad", self.pad, 0, min(self.positions - 2, self.vocab - 1))
        chosen("activation", self.activation, ACTIVATIONS)
        amount("epsilon", self.epsilon)

    @staticmethod
    def _one_each(name: str, values: tuple, of: str, count: int) -> None:
        if len(row(name, values)) != count:
            raise ValueError(f"{name} is {values}, must have one for each of {count} {of}")

    @property
    def longest(self) -> int:
        """The most tokens of a sequence."""
        return self.positions - (0 if self.pad is None else self.pad + 1)


class WindowAttention(nn.Module):
    """Attention over a window, [B, T, D] to [B, T, D]; global tokens have projections of their own.

    A global token's row is made by `global_q`, `global_k` and `global_v` of all tokens; the others
    see it, as any key, through `k` and `v`. Heads of one dilation are computed together.
    """

    def __init__(self, config: LongformerConfig, layer: int, attention: Attention = longformer):
        super().__init__()
        width, self.heads, self.attention = config.width, config.heads, attention
        self.window, self.causal = config.windows[layer], config.causal
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.global_q, self.global_k, self.global_v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        dilations = config.dilations[layer] if config.dilations else (1,) * self.heads
        self.groups = {
            dilation: [head for head, other in enumerate(dilations) if other == dilation]
            for dilation in sorted(set(dilations))
        }

    def forward(self, x_BTD: Tensor, global_mask: Tensor | None = None) -> Tensor:
        projections = [self.q, self.k, self.v]
        if global_mask is not None:
            projections += [self.global_q, self.global_k, self.global_v]
        q, k, v, *others = (one(x_BTD).unflatten(-1, (self.heads, -1)) for one in projections)
        o_BTHK = torch.empty_like(q)
        for dilation, heads in self.groups.items():
            q_, k_, v_, *others_ = (x[:, :, heads] for x in (q, k, v, *others))
            o_BTHK[:, :, heads] = self.attention(
                q_, k_, v_, self.window, dilation, self.causal, None, global_mask, *others_
            )
        return self.out(o_BTHK.flatten(-2))


class LongformerBlock(nn.Module):
    """Attention, then an MLP; each is added to what it read, and the sum normalised."""

    def __init__(self, config: LongformerConfig, layer: int, attention: Attention):
        super().__init__()
        width, hidden = config.width, config.hidden or 4 * config.width
        self.activation = ACTIVATIONS[config.activation]
        self.mixer = WindowAttention(config, layer, attention)
        self.norm_mixer = nn.LayerNorm(width, config.epsilon)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm_mlp = nn.LayerNorm(width, config.epsilon)

    def forward(self, x_BTD: Tensor, global_mask: Tensor | None) -> Tensor:
        x_BTD = self.norm_mixer(x_BTD + self.mixer(x_BTD, global_mask))
        return self.norm_mlp(x_BTD + self.down(self.activation(self.up(x_BTD))))


class TokenScores(nn.Module):
    """Scores for the token at each place: [B, T, D] to [B, T, N]."""

    def __init__(self, config: LongformerConfig, embedding: nn.Embedding):
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, config.epsilon)
        self.decoder = nn.Linear(config.width, config.vocab)
        if config.tied:
            self.decoder.weight = embedding.weight

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.decoder(self.norm(gelu(self.dense(x_BTD))))


class Longformer(nn.Module):
    """Beltagy et al. 2020's Longformer, which reads a document whole.

    `model(tokens [B, T], global_mask [B, T] in bool)` gives scores [B, T, N] for the token at each
    place; a config without `scores` gives the last hidden states [B, T, D]. Every token is seen,
    those that only pad too. T is anything up to `config.longest`, windows need not divide it.
    `attention` is weft.ref.sparse.longformer, or a function with its face, as
    weft.kernels.sparse.longformer.
    """

    def __init__(self, config: LongformerConfig, attention: Attention = longformer):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        for each in (self.tokens, self.positions):
            nn.init.normal_(each.weight, std=0.02)
        self.norm = nn.LayerNorm(config.width, config.epsilon)
        self.blocks = nn.ModuleList(
            LongformerBlock(config, layer, attention) for layer in range(config.layers)
        )
        self.scores = TokenScores(config, self.tokens) if config.scores else nn.Identity()

    def forward(self, tokens_BT: Tensor, global_mask: Tensor | None = None) -> Tensor:
        x_BTD = self.norm(self.tokens(tokens_BT) + self.positions(self.places(tokens_BT)))
        for block in self.blocks:
            x_BTD = block(x_BTD, global_mask)
        return self.scores(x_BTD)

    def places(self, tokens_BT: Tensor) -> Tensor:
        """Which position embedding each token gets."""
        T, pad = tokens_BT.shape[1], self.config.pad
        if self.config.longest < T:
            raise ValueError(f"tokens have {T} in time, must have at most {self.config.longest}")
        if pad is None:
            return torch.arange(T, device=tokens_BT.device)
        counts = tokens_BT != pad
        return counts.cumsum(1) * counts + pad
