"""A model whose layers of experts all lie over ranks, and the bias that keeps them busy."""

import torch
from torch import nn

from weft.nn.experts import SwitchMLP
from weft.plan.arguments import amount, instance
from weft.run.collectives import Group, all_reduce
from weft.run.experts.layer import ExpertParallel


def parallelize(module: nn.Module, world: Group, factor: float | None = None) -> nn.Module:
    """The module, the same on every rank, with each SwitchMLP in it an ExpertParallel.

    `world` are the ranks over which experts lie: all, or an axis of a grid.
    """
    instance(nn.Module, module=module)
    if isinstance(module, SwitchMLP):
        return ExpertParallel(module, world, factor)
    for name, layer in [*module.named_modules()]:
        if isinstance(layer, SwitchMLP):
            module.set_submodule(name, ExpertParallel(layer, world, factor))
    return module


@torch.no_grad()
def steer(module: nn.Module, rate: float, replicas: Group | None = None) -> None:
    """After a step, raise the bias of experts with too few choices by `rate`, and lower others'.

    Few are fewer than the mean of all ranks' choices: those of the e ranks of a layer, and of the
    `replicas` of its experts. How many too few does not matter. It balances without a gradient
    that pulls against the loss. What is a small step depends on the scores: DeepSeek-V3's 0.001 is
    for sigmoids, near 1/2; probabilities are 1/E on average. Wang et al. 2024.
    """
    instance(nn.Module, module=module)
    rate = amount("rate", rate)
    for layer in module.modules():
        if isinstance(layer, ExpertParallel) and layer.routed is not None:
            choices = layer.routed.choices.clone()
            if replicas is not None:
                all_reduce(choices, replicas)
            if layer.bias is None:
                layer.bias = torch.zeros_like(layer.router[0])
            layer.bias += rate * (choices.float().mean() - choices).sign()
