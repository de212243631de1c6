"""Switch the model: T5 whose MLPs are, in some layers, one of many experts.

Dims: B batch, T time, S time of the encoder, D width, E experts, N vocabulary.
"""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from weft.nn.experts.layer import SCALE, Kernel, Routed, SwitchMLP, balance, scored
from weft.nn.experts.relative import RelativeBias, T5Attention
from weft.plan.arguments import amount, sizes, whole
from weft.ref import experts
from weft.ref.experts import Routes, route


@dataclass(frozen=True)
class SwitchConfig:
    """Sizes: `layers` of an encoder and `decoder_layers`, of `width`; the defaults are small.

    `heads` are of `head_width` each, whatever the width; `hidden` is that of an MLP, dense or of
    one of `experts`, of which each takes at most `capacity` tokens of a sequence, or all if None.
    Every `step`-th layer has experts, the second being the first of them: all layers where it is
    1, none where it is 0; `decoder_step` is the decoder's. `buckets` and `farthest` are those of
    the position bias. ValueError names what does not fit.
    """

    layers: int = 2
    decoder_layers: int = 2
    width: int = 64
    heads: int = 4
    head_width: int = 16
    hidden: int = 128
    vocab: int = 256
    experts: int = 4
    capacity: int | None = 64
    step: int = 2
    decoder_step: int = 2
    buckets: int = 32
    farthest: int = 128
    epsilon: float = 1e-6

    def __post_init__(self):
        sizes(layers=self.layers, decoder_layers=self.decoder_layers, width=self.width)
        sizes(heads=self.heads, head_width=self.head_width, hidden=self.hidden)
        sizes(vocab=self.vocab, experts=self.experts)
        sizes(capacity=1 if self.capacity is None else self.capacity)
        for name in ("step", "decoder_step"):
            whole(name, getattr(self, name), 0)
        whole("farthest", self.farthest, whole("buckets", self.buckets, 4) // 2 + 1)
        amount("epsilon", self.epsilon)


class SequenceMLP(SwitchMLP):
    """SwitchMLP on [B, T, D] where an expert takes its first `capacity` tokens of each sequence.

    So what a sequence gives does not depend on the others of its batch. What is dropped is 0.
    An ExpertParallel made of it has its own rule for capacity, and not this one.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        experts: int,
        capacity: int | None = None,
        kernel: Kernel | None = None,
    ):
        super().__init__(width, hidden, experts, kernel=kernel)
        self.capacity = capacity

    def forward(self, x_BTD: Tensor) -> Tensor:
        scores_BTE = scored(x_BTD, self.router)
        each = [route(scores, self.k, self.capacity, self.bias) for scores in scores_BTE]
        routes = Routes(*(torch.cat(parts) for parts in zip(*each, strict=True)))
        choices = routes.expert.flatten().bincount(minlength=len(self.up))
        self.routed = Routed(scores_BTE.flatten(0, 1), routes, choices)
        compute = self.kernel or experts.mlp
        y = compute(x_BTD.flatten(0, 1), *routes[:2], routes.kept, self.up, self.down)
        return y.view_as(x_BTD)


class DenseMLP(nn.Module):
    """down(relu(up(x)))."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


class T5Block(nn.Module):
    """Attention, in a decoder attention to the encoder, and an MLP: each reads a norm, is added."""

    def __init__(self, config: SwitchConfig, decoder: bool, sparse: bool, kernel: Kernel | None):
        super().__init__()
        heads = config.width, config.heads, config.head_width
        self.norm_attention = nn.RMSNorm(config.width, config.epsilon)
        self.attention = T5Attention(*heads)
        if decoder:
            self.norm_cross = nn.RMSNorm(config.width, config.epsilon)
            self.cross = T5Attention(*heads)
        self.norm_mlp = nn.RMSNorm(config.width, config.epsilon)
        both = config.width, config.hidden
        experts = config.experts, config.capacity, kernel
        self.mlp = SequenceMLP(*both, *experts) if sparse else DenseMLP(*both)

    def forward(self, x_BTD: Tensor, bias_HTT: Tensor, encoded: Tensor | None) -> Tensor:
        x_BTD = x_BTD + self.attention(self.norm_attention(x_BTD), bias_HTT)
        if encoded is not None:
            x_BTD = x_BTD + self.cross(self.norm_cross(x_BTD), other=encoded)
        return x_BTD + self.mlp(self.norm_mlp(x_BTD))


class Stack(nn.Module):
    """Blocks with one position bias for all, and a norm: [B, T, D] to [B, T, D].

    A decoder is also given what the encoder made, [B, S, D].
    """

    def __init__(self, config: SwitchConfig, decoder: bool, kernel: Kernel | None):
        super().__init__()
        layers = config.decoder_layers if decoder else config.layers
        step = config.decoder_step if decoder else config.step
        self.bias = RelativeBias(config.heads, config.buckets, config.farthest, both=not decoder)
        self.blocks = nn.ModuleList(
            T5Block(config, decoder, step == 1 or (step > 0 and i % step == 1), kernel)
            for i in range(layers)
        )
        self.norm = nn.RMSNorm(config.width, config.epsilon)

    def forward(self, x_BTD: Tensor, encoded: Tensor | None = None) -> Tensor:
        bias_HTT = self.bias(x_BTD.shape[1])
        for block in self.blocks:
            x_BTD = block(x_BTD, bias_HTT, encoded)
        return self.norm(x_BTD)


class Switch(nn.Module):
    """Fedus et al. 2022's Switch Transformer, which reads one sequence and writes another.

    `model(tokens [B, S], decoder_tokens [B, T])` gives scores [B, T, N] for the decoder's next
    token. Every token is read and takes its place at an expert, those that only pad too. Nothing
    is random: there is no dropout, and no noise on what a router reads. `kernel` is SwitchMLP's.

    Scores are products with the embeddings over sqrt(D). Weights begin as SwitchMLP's, the dense
    ones too; embeddings are standard normal, and position biases 0.
    """

    def __init__(self, config: SwitchConfig, kernel: Kernel | None = None):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.encoder = Stack(config, False, kernel)
        self.decoder = Stack(config, True, kernel)
        for each in self.modules():
            if isinstance(each, nn.Linear):
                std = sqrt(SCALE / each.in_features)
                nn.init.trunc_normal_(each.weight, std=std, a=-2 * std, b=2 * std)

    def forward(self, tokens_BS: Tensor, decoder_tokens_BT: Tensor) -> Tensor:
        encoded = self.encoder(self.embedding(tokens_BS))
        x_BTD = self.decoder(self.embedding(decoder_tokens_BT), encoded)
        return x_BTD * self.config.width**-0.5 @ self.embedding.weight.T

    def routed(self) -> list[Routed]:
        """What each router did in the last call, the encoder's first."""
        mlps = [block.mlp for stack in (self.encoder, self.decoder) for block in stack.blocks]
        routed = [getattr(mlp, "routed", None) for mlp in mlps]  # a dense one has no router
        return [each for each in routed if each is not None]

    def balances(self) -> list[Tensor]:
        """Each router's E sum_i f_i P_i in the last call, the encoder's first.

        Training adds their sum, times 0.01 in the paper, to the loss (its section 2.2).
        """
        return [balance(each) for each in self.routed()]
