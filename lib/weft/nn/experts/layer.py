"""Switch's MLP: a router, and the matrices of all experts.

Dims: D width, F hidden width of an expert, E experts, k of them for a token.
"""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.plan.arguments import sizes
from weft.plan.experts import capacity, check_mlp
from weft.ref.experts import Routes, route

Kernel = Callable[..., Tensor]  # with the face of weft.ref.experts.mlp
SCALE = 0.1  # of initial variances: a tenth of the usual, with which training is steadier


class Routed(NamedTuple):
    """What a router has just done: scores [tokens, E], their routes, and choices [E].

    The last are how many choices each expert was given before any was dropped, by all ranks
    where there are several: what balances an expert's load has to know all of it.
    """

    scores: Tensor
    routes: Routes
    choices: Tensor


class SwitchMLP(nn.Module):
    """The weighted sum of what a token's k experts make of it: [.., D] to [.., D].

    All tokens of a call share the experts' capacity, which is ceil(k tokens factor / E), and what
    finds its expert full adds 0; nothing is dropped where factor is None. `kernel` computes what
    the experts make, with the face of weft.ref.experts.mlp: that, or weft.kernels.experts.mlp;
    None is `mlp` here. `routed` is what the last call's router did.

    A tensor [E] in `bias` is added to the probabilities where experts are chosen, and nowhere
    else: it balances them without a loss (DeepSeek-V3). It is None at first.

    Weights begin as Fedus et al. 2022, section 2.4: normal, cut off at two standard deviations of
    sqrt(0.1 / rows), rows being what each output sums over.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        experts: int,
        k: int = 1,
        factor: float | None = None,
        kernel: Kernel | None = None,
    ):
        super().__init__()
        D, F, E = sizes(width=width, hidden=hidden, experts=experts)
        capacity(0, E, 1.0 if factor is None else factor, k)  # refuses what does not fit
        self.k, self.factor, self.kernel = k, factor, kernel
        self.router = nn.Parameter(torch.empty(D, E))
        self.up = nn.Parameter(torch.empty(E, D, F))
        self.down = nn.Parameter(torch.empty(E, F, D))
        self.register_buffer("bias", None)
        self.routed: Routed | None = None
        for weight in (self.router, self.up, self.down):
            std = sqrt(SCALE / weight.shape[-2])
            nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        scores = scored(rows, self.router)
        E = len(self.up)
        most = None if self.factor is None else capacity(len(rows), E, self.factor, self.k)
        routes = route(scores, self.k, most, self.bias)
        self.routed = Routed(scores, routes, routes.expert.flatten().bincount(minlength=E))
        return (self.kernel or mlp)(rows, *routes[:2], routes.kept, self.up, self.down).view_as(x)


def mlp(
    x: Tensor, expert: Tensor, weight: Tensor, kept: Tensor, up: Tensor, down: Tensor
) -> Tensor:
    """weft.ref.experts.mlp of copies in the experts' order, which a processor is quicker with."""
    check_mlp(x, expert, weight, kept, up, down)
    E = len(up)
    whither = torch.where(kept, expert, E).flatten()
    *counts, dropped = whither.bincount(minlength=E + 1).tolist()
    order = whither.argsort(stable=True)[: len(whither) - dropped]
    token = order // expert.shape[1]
    made = in_turn(x.index_select(0, token), counts, up, down)
    return weighed(made, order, weight).to(x.dtype)


def in_turn(rows: Tensor, counts: Sequence[int], up: Tensor, down: Tensor) -> Tensor:
    """What experts make of rows [tokens, D] that lie in their order, counts[e] of each."""
    every = zip(rows.split(counts), up, down, strict=True)
    return torch.cat([(mine @ first).relu() @ second for mine, first, second in every])


def weighed(made: Tensor, order: Tensor, weight: Tensor) -> Tensor:
    """For each token [tokens, D] the sum of what its choices made, times their weights.

    Row i of made belongs to choice order[i] of weight [tokens, k], flattened; choices that are in
    no row add 0. Every choice has a place of its own, so that sums do not depend on an order.
    """
    placed = made.new_zeros(weight.numel(), made.shape[1]).index_copy(0, order, made)
    return (placed.view(*weight.shape, made.shape[1]) * weight.unsqueeze(-1)).sum(1)


def scored(x: Tensor, router: Tensor) -> Tensor:
    """The router's scores of tokens [tokens, D], in fp32 or wider."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return x.to(wide) @ router.to(wide)


def balance(routed: Routed) -> Tensor:
    """E sum_i f_i P_i, as weft.ref.experts.balance, with f of all ranks' choices.

    P are the mean probabilities of this rank's tokens: the mean of the losses over all tokens is
    the loss of all tokens, and a rank's own load alone is not what is balanced.
    """
    scores, _, choices = routed
    f = choices.to(scores.dtype) / choices.sum().clamp(min=1)
    return scores.shape[-1] * (f * scores.softmax(-1).mean(0)).sum()
