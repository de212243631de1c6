"""ZeRO: data parallel training in which each rank keeps only a part of the state.

Every rank has its own part of the batch, and gradients are averaged. What a rank keeps is what
the stages differ in: 0 everything; 1 a shard of the optimizer's state; 2 also of the gradients;
3 also of the weights. What is sent is what weft.plan.zero lists.

    zero = Zero(module, lambda parameters: torch.optim.AdamW(parameters), stage=2, world=world)
    loss(zero(inputs), targets).backward()
    zero.step()
    zero.zero_grad()

Until `zero.close()` the module's gradients go to zero, and under stage 3 its weights come and go.
Stages 0, 1 and 2 are in sharded, stage 3 in gathered.
"""

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from weft.plan.zero import checked_stage
from weft.ref.precision import LossScaler
from weft.run.collectives import Group
from weft.run.zero.buckets import Piece
from weft.run.zero.checks import Own
from weft.run.zero.gathered import Zero3
from weft.run.zero.optimizer import Groups
from weft.run.zero.sharded import BUCKET, DataParallel, Zero1, Zero2
from weft.run.zero.units import Units

__all__ = ["STAGES", "DataParallel", "Piece", "Zero", "Zero1", "Zero2", "Zero3"]

STAGES = (DataParallel, Zero1, Zero2, Zero3)


def Zero(
    module: nn.Module,
    optimizer: Callable[[Iterable], Optimizer],
    stage: int,
    world: Group,
    *,
    bucket: int = BUCKET,
    dtype: torch.dtype | None = None,
    scaler: LossScaler | None = None,
    unused: bool = False,
    units: Units | None = None,
    buffers: str = "own",
    groups: Groups | None = None,
    hooks: bool = True,
    own: Own | None = None,
    over: int | None = None,
) -> DataParallel:
    """Train a module on all ranks of a world together, under a stage of ZeRO.

    Every rank calls it with the same module; rank 0's weights are everybody's. `optimizer` makes
    a torch optimizer from parameters: it gets flat pieces, so it must be one that treats all
    elements alike, as SGD and Adam do. Options by parameter, such as no weight decay for norms,
    are what `groups` returns for its full name and shape; the optimizer is then given groups.
    `bucket` is how many elements are sent together at most, if no parameter alone has more; stage 3
    sends a unit's together. `units`, names or modules, has them be those, as fully_shard on each
    would; else they are the module's children, and of a child around repeated blocks the blocks.
    With `dtype` the module computes and sends in it, and the optimizer has fp32 masters;
    fp16 wants a `scaler`, by which the loss is scaled before backward. Buffers, and parameters
    that are not trained, stay whole on every rank. Each rank has its own buffers, or with
    `buffers="rank 0"` that rank's at the beginning of each forward in training, as
    DistributedDataParallel has by default.

    Until the step, gradients are not in the parameters but in flat buffers. Weights to save, copy
    or write are whole within `with zero.gathered():`. All ranks run as many backward passes between
    two steps. Without `hooks`, which stage 3 needs, gradients stay in the parameters and add up
    there until `take()`: for whoever runs backward in parts. `own` says of a parameter's name
    whether it is this Zero's business; the others are left to another Zero, as experts are whose
    gradients other ranks share. Gradients are divided by `over`, the ranks if None.

    A parameter whose gradient no rank has is left alone by the optimizer: where this rank has none,
    a mean of nothing but zeros means that. Where ranks use different parameters, `unused` has them
    tell each other, a byte for each and step. That, rank 0's buffers, a byte for an overflow where
    there is a scaler, and 8 for the norm in `clip` in stages 1 to 3 are all that is sent beside
    the plan.

    ValueError names what does not fit.
    """
    kind = STAGES[checked_stage(stage)]
    how = bucket, dtype, scaler, unused, units, buffers, groups, hooks, own, over
    return kind(module, optimizer, world, *how)
