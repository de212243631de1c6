"""Whole states of a model whose experts lie over ranks, to keep and to load on any number."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weft.plan.arguments import instance
from weft.run.collectives import all_gather
from weft.run.experts.layer import ExpertParallel

MATRICES = ("up", "down")


def whole(module: nn.Module) -> dict[str, Tensor]:
    """The state_dict of the undivided module, copied, on every rank; all call it together."""
    state = {name: x.detach().clone() for name, x in _state(module).items()}
    for name, layer in divided(module).items():
        state[name] = all_gather(state[name], layer.group, layer.shares)
    return state


@torch.no_grad()
def load(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Take what `whole` gave, on whatever number of ranks that was, or an undivided module's.

    ValueError, before anything is changed, names what does not fit.
    """
    mine, layers = _state(module), divided(module)
    instance(Mapping, state=state)
    if odd := sorted(state.keys() ^ mine.keys()):
        what = "no such tensor as" if odd[0] in mine else "an unknown"
        raise ValueError(f"state has {what} {odd[0]}, must have the names of the whole module")
    for name, x in mine.items():
        most = (layers[name].total, *x.shape[1:]) if name in layers else tuple(x.shape)
        if tuple(state[name].shape) != most:
            told = f"state has shape {tuple(state[name].shape)} for {name}"
            raise ValueError(f"{told}, must have {most}")
    for name, x in mine.items():
        layer, given = layers.get(name), state[name]
        x.copy_(given.tensor_split(layer.n)[layer.rank] if layer else given)


def whole_optimizer(module: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """The state_dict of an optimizer of all the module's weights, of whole experts, likewise.

    Of an expert's state that is gathered which has the weight's shape, as Adam's moments have.
    """
    state = deepcopy(_checked(optimizer).state_dict())
    for layer, weight, kept in _experts_states(module, optimizer, state):
        for name, x in kept.items():
            if isinstance(x, Tensor) and x.shape == weight.shape:
                kept[name] = all_gather(x, layer.group, layer.shares)
    return state


def load_optimizer(module: nn.Module, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Take what `whole_optimizer` gave, on whatever number of ranks that was."""
    instance(Mapping, state=state)
    _checked(optimizer)
    state = deepcopy(dict(state))
    for layer, weight, kept in _experts_states(module, optimizer, state):
        for name, x in kept.items():
            if isinstance(x, Tensor) and x.shape == (layer.total, *weight.shape[1:]):
                kept[name] = x.tensor_split(layer.n)[layer.rank].clone()
    optimizer.load_state_dict(state)


def _checked(optimizer: Optimizer) -> Optimizer:
    instance(Optimizer, optimizer=optimizer)
    return optimizer


def _experts_states(
    module: nn.Module, optimizer: Optimizer, state: Mapping[str, Any]
) -> Iterator[tuple[ExpertParallel, Tensor, dict[str, Any]]]:
    """Each of the experts' weights with its layer and the state that is kept of it."""
    instance(nn.Module, module=module)
    owner = {
        id(weight): layer
        for layer in module.modules()
        if isinstance(layer, ExpertParallel)
        for weight in (layer.up, layer.down)
    }
    weights = (weight for group in optimizer.param_groups for weight in group["params"])
    for i, weight in enumerate(weights):
        if id(weight) in owner and i in state.get("state", {}):
            yield owner[id(weight)], weight, state["state"][i]


def _state(module: nn.Module) -> dict[str, Tensor]:
    instance(nn.Module, module=module)
    return module.state_dict(keep_vars=True)


def divided(module: nn.Module) -> dict[str, ExpertParallel]:
    """The layer of each tensor of which a rank has its experts' part, by the tensor's name."""
    instance(nn.Module, module=module)
    return {
        f"{name}.{matrix}" if name else matrix: layer
        for name, layer in module.named_modules()
        if isinstance(layer, ExpertParallel)
        for matrix in MATRICES
    }
