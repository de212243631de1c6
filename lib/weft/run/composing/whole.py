"""The whole decoder's state, from stages that lie over the ranks of a pipeline."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from weft.nn.transformer import Config, stages
from weft.plan.schedule import Plan
from weft.run import experts, tensor
from weft.run.collectives import broadcast
from weft.run.world import World


def names(config: Config, count: int) -> list[dict[str, tuple[str, torch.Size]]]:
    """For each of `count` stages its tensors by name: what the whole calls it, and its shape."""
    with torch.device("meta"):
        every = stages(config, count)
    places = [0, *accumulate(map(len, every))]
    return [
        {name: (renamed(name, place), x.shape) for name, x in stage.state_dict().items()}
        for stage, place in zip(every, places, strict=False)
    ]


def renamed(name: str, place: int) -> str:
    """The whole's name of a stage's tensor, whose first part is the whole's part `place`.

    >>> renamed("0.qkv.weight", 3)
    '3.qkv.weight'
    """
    part, _, rest = name.partition(".")
    return f"{int(part) + place}.{rest}"


def whole_stage(module: nn.Module) -> dict[str, Tensor]:
    """A stage's state as if it were on one rank; its tensor ranks and its experts' call it."""
    divided = experts.divided(module)
    found = experts.whole(module) if divided else {}
    return tensor.whole(module) | {name: found[name] for name in divided}


def gathered_over_stages(
    config: Config, plan: Plan, mine: Sequence[Mapping[str, Tensor]], world: World
) -> dict[str, Tensor]:
    """All stages' states under the whole's names, on every rank; `mine` are this rank's stages'."""
    own = dict(zip(plan.stages_of(world.rank), mine, strict=True))
    like = next(iter(mine[0].values()))
    found = {}
    for stage, tensors in enumerate(names(config, plan.stages)):
        sizes = [shape.numel() for _, shape in tensors.values()]
        flat = like.new_empty(sum(sizes))
        if stage in own:
            torch.cat([own[stage][name].flatten() for name in tensors], out=flat)
        broadcast(flat, world, root=plan.ranks[stage])
        for (name, shape), part in zip(tensors.values(), flat.split(sizes), strict=True):
            found[name] = part.view(shape).clone()
    return found
