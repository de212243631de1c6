"""Switch's MLP: a router, and the matrices of all experts.

Dims: D width, F hidden width of an expert, E experts, k of them for a token.
"""

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.plan.arguments import sizes
from weft.plan.experts import capacity
from weft.ref import experts
from weft.ref.experts import Routes, route

Kernel = Callable[..., Tensor]  # with the face of weft.ref.experts.mlp
SCALE = 0.1  # of initial variances: a tenth of the usual, without which training is unstable


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
    the experts make, with the face of weft.ref.experts.mlp, which it is if None, or of
    weft.kernels.experts.mlp. `routed` is what the last call's router did.

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
        compute = self.kernel or experts.mlp
        return compute(rows, *routes[:2], routes.kept, self.up, self.down).view_as(x)


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
