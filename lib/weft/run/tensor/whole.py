"""What the unsplit module would have: its states, to keep and to load, and its gradients' norm."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from weft.plan.arguments import instance
from weft.run.collectives import all_gather
from weft.run.tensor.exchange import TensorRanks
from weft.run.tensor.linear import CutLinear
from weft.run.tensor.vocabulary import VocabularyEmbedding


class CutTensor(NamedTuple):
    """A tensor of which each rank has a part: the dim that is cut, and which columns, by rank."""

    dim: int
    columns: list[Tensor]
    ranks: TensorRanks

    @property
    def mine(self) -> Tensor:
        """This rank's columns of the whole."""
        return self.columns[self.ranks.rank]


def cuts(module: nn.Module) -> dict[str, CutTensor]:
    """The tensors of which a rank has a part, by name; all others it has whole."""
    instance(nn.Module, module=module)
    found = {}
    for name, layer in module.named_modules():
        before = f"{name}." if name else ""
        if isinstance(layer, CutLinear):
            found[f"{before}weight"] = CutTensor(layer.dim, layer.columns, layer.ranks)
            if layer.dim == 0 and layer.bias is not None:
                found[f"{before}bias"] = found[f"{before}weight"]
        elif isinstance(layer, VocabularyEmbedding):
            found[f"{before}tokens.weight"] = CutTensor(0, layer.columns, layer.ranks)
    return found


def whole(module: nn.Module) -> dict[str, Tensor]:
    """The state_dict of the unsplit module, copied, on every rank; all call it together."""
    instance(nn.Module, module=module)
    state = {name: x.detach().clone() for name, x in module.state_dict().items()}
    for name, (dim, columns, ranks) in cuts(module).items():
        parts = state[name].movedim(dim, 0).contiguous()
        rows = all_gather(parts, ranks.group, [len(part) for part in columns])
        order = torch.cat(columns).argsort().to(rows.device)
        state[name] = rows.index_select(0, order).movedim(0, dim).contiguous()
    return state


@torch.no_grad()
def load(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Take what `whole` gave, on whatever number of ranks that was, or an unsplit module's.

    ValueError, before anything is changed, names what does not fit.
    """
    instance(nn.Module, module=module)
    instance(Mapping, state=state)
    mine, divided = module.state_dict(keep_vars=True), cuts(module)
    if odd := sorted(state.keys() ^ mine.keys()):
        what = "no such tensor as" if odd[0] in mine else "an unknown"
        raise ValueError(f"state has {what} {odd[0]}, must have the names of the whole module")
    parts = {}
    for name, x in mine.items():
        shape, given = list(x.shape), state[name]
        if cut := divided.get(name):
            shape[cut.dim] = sum(map(len, cut.columns))
        if list(getattr(given, "shape", ())) != shape:
            found = tuple(getattr(given, "shape", ()))
            raise ValueError(f"state has shape {found} for {name}, must have {tuple(shape)}")
        if cut:
            given = given.index_select(cut.dim, cut.mine.to(given.device))
        parts[name] = given
    for name, x in mine.items():
        x.copy_(parts[name])


def gradient_norm(module: nn.Module) -> Tensor:
    """The norm of all gradients that the unsplit module would have: what clipping goes by.

    Squares of what a rank has a part of are summed over the ranks; what all have counts once.
    torch's clip_grad_norm_ would find another norm on every rank, and so scale what all share
    differently; with this one, torch.nn.utils.clip_grads_with_norm_ scales it alike.
    """
    instance(nn.Module, module=module)
    owners = {name: cut.ranks.group for name, cut in cuts(module).items()}
    device = next((weight.device for weight in module.parameters()), None)
    zero = torch.zeros((), dtype=torch.float64, device=device)
    squares = {group: zero.clone() for group in (None, *owners.values())}
    for name, weight in module.named_parameters():
        if weight.grad is not None:
            squares[owners.get(name)] += weight.grad.double().square().sum()
    for group, square in squares.items():
        if group is not None:
            dist.all_reduce(square, group=group)
    return sum(squares.values()).sqrt()
