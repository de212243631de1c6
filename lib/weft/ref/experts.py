"""Mixture of experts: a router chooses k experts for a token, and each takes what it can hold."""

from typing import NamedTuple

import torch
from torch import Tensor

from weft.plan import experts
from weft.plan.arguments import instance, whole
from weft.plan.tensors import ranked, tensor


class Routes(NamedTuple):
    """For each token and choice, all [tokens, k]: whither, how much it counts, and its place."""

    expert: Tensor  # which expert, int64
    weight: Tensor  # its probability, fp32 or wider
    position: Tensor  # how many choices of the same expert come before, int64
    kept: Tensor  # whether the expert has room for it, bool


def route(
    scores: Tensor, k: int = 1, capacity: int | None = None, bias: Tensor | None = None
) -> Routes:
    """Each token's k best experts, with their probabilities and places.

    Probabilities are the softmax over all experts in fp32, and are not renormalised over the
    chosen. Of equal scores the first expert's is the better one. Places are given in the order
    of tokens, and for each token in that of its choices; an expert keeps the first `capacity` of
    them, all where that is None. With a `bias` [E] the best are those of the highest probability
    plus bias; how much each counts is still its probability.

    scores [tokens, E]. ValueError names an argument that does not fit. Fedus et al. 2022,
    section 2.1; Shazeer et al. 2017 for k > 1; Wang et al. 2024 for the bias.
    """
    (tokens, E), k = ranked("scores", scores, "tokens E", empty="tokens"), whole("k", k)
    if k > E:
        raise ValueError(f"k is {k}, must be at most E = {E}")
    odds = _probabilities(scores)
    if bias is not None:
        tensor("bias", bias, "[E] of scores", (E,), beside=("scores", scores))
    merit = odds.detach() if bias is None else odds.detach() + bias
    expert = merit.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    weight = odds.gather(-1, expert)
    chosen = torch.nn.functional.one_hot(expert, E)  # [tokens, k, E]
    before = chosen.flatten(0, 1).cumsum(0).view_as(chosen) - chosen
    position = before.gather(-1, expert.unsqueeze(-1)).squeeze(-1)
    most = tokens * k if capacity is None else whole("capacity", capacity, 0)
    return Routes(expert, weight, position, position < most)


def switch(
    x: Tensor, router: Tensor, up: Tensor, down: Tensor, k: int = 1, factor: float | None = None
) -> Tensor:
    """The weighted sum of what a token's experts make of it: sum_e p_e down_e(relu(up_e(x))).

    With a capacity factor an expert takes `capacity(tokens, E, factor, k)` choices; what finds
    it full adds 0. All tokens where factor is None.

    x [tokens, D], router [D, E], up [E, D, F], down [E, F, D] give [tokens, D]. ValueError names
    an argument that does not fit. Fedus et al. 2022, section 2.
    """
    E, D, _ = experts.check_matrices(x, up, down)
    T = len(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    tensor("router", router, "[D, E] of x and up", (D, E), beside=("x", x))
    most = None if factor is None else experts.capacity(T, E, factor, k)
    routes = route(x.to(wide) @ router.to(wide), k, most)
    return mlp(x, routes.expert, routes.weight, routes.kept, up, down)


def mlp(
    x: Tensor, expert: Tensor, weight: Tensor, kept: Tensor, up: Tensor, down: Tensor
) -> Tensor:
    """The weighted sum of what the experts of given routes make of each token, one by one.

    x [tokens, D]; expert, weight and kept [tokens, k] as `route` gives them; up [E, D, F], down
    [E, F, D]. ValueError names an argument that does not fit.
    """
    experts.check_mlp(x, expert, weight, kept, up, down)
    y = torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
    for e in range(len(up)):
        token, choice = (kept & (expert == e)).nonzero(as_tuple=True)
        made = (x[token] @ up[e]).relu() @ down[e]
        y = y.index_add(0, token, weight[token, choice].unsqueeze(-1) * made.to(y.dtype))
    return y.to(x.dtype)


def balance(scores: Tensor, routes: Routes) -> Tensor:
    """E sum_i f_i P_i: 1 where load and probabilities are even, E where one expert has all.

    f_i is the share of all choices that fall on expert i, before any is dropped, and a constant
    for the gradient; P_i is the mean probability of expert i. Fedus et al. 2022, equations 4 to 6.
    """
    tokens, E = ranked("scores", scores, "tokens E")
    instance(Routes, routes=routes)
    chosen, like = (tokens, *routes.expert.shape[1:]), {"beside": ("scores", scores)}
    tensor("routes", routes.expert, "[tokens, k] of scores", chosen, dtypes=("int64",), **like)
    f = torch.nn.functional.one_hot(routes.expert, E).flatten(0, 1).to(torch.float32).mean(0)
    return E * (f * _probabilities(scores).mean(0)).sum()


def z_loss(scores: Tensor) -> Tensor:
    """The mean over tokens of the squared log-sum-exp of their scores, which keeps these small.

    Zoph et al. 2022, equation 5.
    """
    ranked("scores", scores, "tokens E")
    wide = torch.promote_types(scores.dtype, torch.float32)
    return scores.to(wide).logsumexp(-1).square().mean()


def _probabilities(scores: Tensor) -> Tensor:
    """The softmax over experts, in fp32 or wider."""
    return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
