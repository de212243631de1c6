"""Who sums which gradient, where experts lie over the ranks that also split the batch."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from weft.plan.arguments import chosen, instance
from weft.run.collectives import Group, group_rank_size
from weft.run.experts.layer import ExpertParallel

OPS = ("mean", "sum")


def reduce_gradients(
    module: nn.Module, data: Group, replicas: Group | None = None, op: str = "mean"
) -> None:
    """Every `.grad` becomes that of the mean of all data ranks' losses, or of their sum.

    `data` are the d ranks whose tokens differ. Weights that all of them have, routers too, hold
    the gradient of the rank's own loss L_r: they are summed over the d ranks, and divided by d.

    An expert is another matter. Its rank has worked for the tokens of all e ranks of its group,
    and backward has brought the gradient of each one's loss: sum_r dL_r / dw over the group is
    there already. `replicas` are the d / e ranks that hold the same experts, one of each group,
    as an axis of a grid (None where e = d); over them it is summed, and then divided by d: by
    all data ranks, not by the d / e that have been summed over. Who divides by those has
    gradients e times too large, which Adam hides, and clipping and SGD do not.

        world.grid(d=d, t=t).axis("d")          data
        world.grid(r=d // e, e=e, t=t)          .axis("e") for ExpertParallel, .axis("r") replicas

    Tensor ranks t with the same tokens have the same gradients, and sum none of them. Where
    tokens are dealt to them as well, they are data ranks.
    """
    instance(nn.Module, module=module)
    chosen("op", op, OPS)
    every, _, d = group_rank_size(data, "data")
    same, _, copies = (None, 0, 1) if replicas is None else group_rank_size(replicas, "replicas")
    layers = [layer for layer in module.modules() if isinstance(layer, ExpertParallel)]
    for layer in layers:
        if layer.n * copies != d:
            raise ValueError(
                f"replicas has {copies} ranks, must have {d} / {layer.n}: all of data over the "
                "ranks that experts lie over"
            )
    owned = {id(weight) for layer in layers for weight in (layer.up, layer.down)}
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    _sum((weight for weight in trained if id(weight) not in owned), every)
    if same is not None:
        _sum((weight for weight in trained if id(weight) in owned), same)
    if op == "mean":
        for weight in trained:
            if weight.grad is not None:
                weight.grad /= d


def gradient_norm(module: nn.Module) -> Tensor:
    """The norm of all gradients that the undivided module would have: what clipping goes by.

    Squares of experts' gradients are summed over the ranks of their group, of which each has
    others; all other gradients, which `reduce_gradients` has made the same everywhere, count once.
    torch's clip_grad_norm_ would find another norm on every rank, and so scale what all share
    differently; with this one, torch.nn.utils.clip_grads_with_norm_ scales it alike.
    """
    instance(nn.Module, module=module)
    layers = [layer for layer in module.modules() if isinstance(layer, ExpertParallel)]
    owner = {id(weight): layer.group for layer in layers for weight in (layer.up, layer.down)}
    device = next((weight.device for weight in module.parameters()), None)
    zero = torch.zeros((), dtype=torch.float64, device=device)
    squares = {group: zero.clone() for group in (None, *(layer.group for layer in layers))}
    for weight in module.parameters():
        if weight.grad is not None:
            squares[owner.get(id(weight))] += weight.grad.double().square().sum()
    for group, square in squares.items():
        if group is not None:
            dist.all_reduce(square, group=group)
    return sum(squares.values()).sqrt()


def _sum(weights: Iterable[Tensor], group: dist.ProcessGroup) -> None:
    """Sum gradients over a group, in one message for each dtype; a rank without one has zeros."""
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for weight in weights:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        by_dtype.setdefault(weight.dtype, []).append(weight.grad)
    for gradients in by_dtype.values():
        flat = torch.cat([x.flatten() for x in gradients])
        dist.all_reduce(flat, group=group)
        for x, part in zip(gradients, flat.split([x.numel() for x in gradients]), strict=True):
            x.copy_(part.view_as(x))
