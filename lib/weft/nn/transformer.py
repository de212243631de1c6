"""A small decoder over bytes, which can be cut into pipeline stages.

Dims: B batch, T time, D width, H heads, K = D / H width of one head, F hidden, N vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from weft.plan.arguments import row, whole

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Config:
    """Sizes of a decoder: `layers` blocks of `width`, `heads` heads, `hidden` in the MLP.

    `vocab` is the number of tokens, 256 for bytes; `seq` the longest sequence; `hidden` is four
    times the width if None.
    """

    layers: int = 8
    width: int = 64
    heads: int = 4
    vocab: int = 256
    seq: int = 64
    hidden: int | None = None

    def __post_init__(self):
        for name, size in ((field.name, getattr(self, field.name)) for field in fields(Config)):
            if size is not None and size < 1:
                raise ValueError(f"{name} is {size}, must be at least 1")
        if self.width % self.heads:
            raise ValueError(f"width is {self.width}, must be a multiple of heads = {self.heads}")

    def block(self, i: int, attention: Attention) -> "Block":
        """Block i of the decoder, from 0 on; the config of another decoder makes others."""
        return Block(self, attention)


def causal(q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor) -> Tensor:
    """Causal attention by torch's own scaled_dot_product_attention; [B, T, H, K] in and out."""
    q, k, v = (x.transpose(1, 2) for x in (q_BTHK, k_BTHK, v_BTHK))
    return scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class Embedding(nn.Module):
    """Token and position embeddings, added: [B, T] whole numbers to [B, T, D].

    The tokens stand at the first positions, or at `places` of a longer sequence, one for each.
    """

    def __init__(self, config: Config, places: Sequence[int] | None = None):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Embedding(config.seq, config.width)
        if places is not None:
            places = [whole("places", i, 0, config.seq - 1) for i in row("places", places)]
        self.places = places

    def forward(self, tokens_BT: Tensor) -> Tensor:
        T, most = tokens_BT.shape[1], self.positions.num_embeddings
        if most < T:
            raise ValueError(f"tokens have {T} in time, must have at most seq = {most}")
        if self.places is not None and len(self.places) != T:
            raise ValueError(f"tokens have {T} in time, must have {len(self.places)}, as places")
        places = range(T) if self.places is None else self.places
        positions_T = torch.tensor(places, device=tokens_BT.device)
        return self.tokens(tokens_BT) + self.positions(positions_T)


class Block(nn.Module):
    """Attention, then an MLP, each added to what it read: [B, T, D] to [B, T, D]."""

    def __init__(self, config: Config, attention: Attention = causal):
        super().__init__()
        width, hidden = config.width, config.hidden or 4 * config.width
        self.heads, self.attention = config.heads, attention
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        qkv = self.qkv(self.norm_attention(x_BTD)).chunk(3, dim=-1)
        q, k, v = (x.unflatten(-1, (self.heads, -1)) for x in qkv)  # [B, T, H, K]
        x_BTD = x_BTD + self.out(self.attention(q, k, v).flatten(-2))
        return x_BTD + self.mlp(self.norm_mlp(x_BTD))

    def mlp(self, x_BTD: Tensor) -> Tensor:
        """What every token is put through alone."""
        return self.down(gelu(self.up(x_BTD)))


class Head(nn.Module):
    """Scores for the byte that comes next: [B, T, D] to [B, T, N]."""

    def __init__(self, config: Config):
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.tokens = nn.Linear(config.width, config.vocab, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.tokens(self.norm(x_BTD))


def stages(
    config: Config,
    count: int | Sequence[int],
    attention: Attention = causal,
    places: Sequence[int] | None = None,
) -> list[nn.Sequential]:
    """The decoder cut into virtual stages: the embedding in the first, the head in the last.

    `count` is how many stages, which then get equally many blocks up to one (the earlier ones
    more), or how many blocks each stage gets. The weights are made in the order of the model, so
    from one seed every cut gives the same model. `places` is Embedding's.

    >>> [len(stage) for stage in stages(Config(layers=3), 2)]
    [3, 2]
    """
    cuts = _cuts(config.layers, count)
    parts = [Embedding(config, places)]
    parts += [config.block(i, attention) for i in range(config.layers)]
    parts.append(Head(config))
    cuts[0] += 1
    cuts[-1] += 1
    ends = [sum(cuts[: i + 1]) for i in range(len(cuts))]
    return [nn.Sequential(*parts[end - size : end]) for size, end in zip(cuts, ends, strict=True)]


def _cuts(layers: int, count: int | Sequence[int]) -> list[int]:
    """How many blocks each stage gets."""
    if isinstance(count, int):
        if not 1 <= count <= layers:
            raise ValueError(f"count is {count}, must be from 1 to layers = {layers}")
        return [layers // count + (i < layers % count) for i in range(count)]
    cuts = list(count)
    if not cuts or sum(cuts) != layers or min(cuts) < 0 or 0 in cuts[1:-1]:
        raise ValueError(
            f"count is {cuts}, must be numbers of blocks that add up to layers = {layers}, "
            f"none of them 0 but where the embedding or the head makes up for it"
        )
    return cuts


def loss(scores_BTN: Tensor, tokens_BT: Tensor) -> Tensor:
    """Mean cross-entropy of the next byte, in nats."""
    return cross_entropy(scores_BTN.flatten(0, 1), tokens_BT.flatten())
