"""What data parallelism asks of its arguments, and how ranks find out that theirs differ."""

import math
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from weft.plan.arguments import whole
from weft.ref.precision import LossScaler
from weft.run.world import World

DTYPES = (None, torch.bfloat16, torch.float16)
BUFFERS = ("own", "rank 0")
Named = tuple[str, nn.Parameter]
Own = Callable[[str], bool]


def check_how(
    bucket: int, dtype: torch.dtype | None, scaler: LossScaler | None, buffers: str
) -> int:
    """The bucket's elements; ValueError for what no model fits."""
    bucket = whole("bucket", bucket)
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, must be one of {', '.join(map(str, DTYPES))}")
    if scaler is not None and not isinstance(scaler, LossScaler):
        raise ValueError(f"scaler is a {type(scaler).__name__}, must be a LossScaler or None")
    if buffers not in BUFFERS:
        raise ValueError(f"buffers is {buffers!r}, must be one of {', '.join(map(repr, BUFFERS))}")
    return bucket


def trained(
    module: nn.Module, world: World | dist.ProcessGroup, own: Own | None = None
) -> list[Named]:
    """The module's own parameters that are trained, each once, with its full name."""
    if own is not None and not callable(own):
        raise ValueError(f"own is a {type(own).__name__}, must be a function of a name, or None")
    if not isinstance(module, nn.Module):
        raise ValueError(f"module is a {type(module).__name__}, must be a torch.nn.Module")
    found = [
        (name, parameter)
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and parameter.numel() and (own is None or own(name))
    ]
    if not found:
        raise ValueError("module has no parameters to train, must have at least one")
    device = world.device if isinstance(world, World) else found[0][1].device
    for name, parameter in module.named_parameters():
        if parameter.device != device:
            raise ValueError(
                f"module has parameter {name} on {parameter.device}, must have it on {device}"
            )
    dtypes = {parameter.dtype: name for name, parameter in found}
    if len(dtypes) > 1:
        told = " and ".join(f"{name} of {dtype}" for dtype, name in dtypes.items())
        raise ValueError(f"module has parameters {told}, must have all of one dtype")
    for name, submodule in module.named_modules():
        if getattr(submodule, "sparse", False):
            raise ValueError(f"module has {name}, whose gradients are sparse, must have dense ones")
    return found


def check_positive(name: str, value: float) -> None:
    """A number above 0; infinity is one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= math.inf:
        raise ValueError(f"{name} is {value!r}, must be a number above 0")


def check_gradient(name: str, gradient: Tensor) -> None:
    """Rows are dense."""
    if gradient.layout != torch.strided:
        raise ValueError(f"module has {name}, whose gradient is sparse, must have dense ones")


def check_same(
    module: nn.Module, how: tuple[object, ...], group: dist.ProcessGroup, own: Own | None
) -> None:
    """Raise ValueError on every rank unless all were given the same kind of module, and the same.

    It costs a message for each rank, which a hang does not.
    """
    told = [("the other arguments", *map(str, how))]
    for name, p in module.named_parameters():
        if own is not None and not own(name):
            continue
        told.append((f"parameter {name}", str(tuple(p.shape)), str(p.dtype), str(p.requires_grad)))
    theirs: list = [None] * group.size()
    dist.all_gather_object(theirs, told, group=group)
    for rank, other in enumerate(theirs):
        for a, b in zip(theirs[0], other, strict=False):
            if a != b:
                raise ValueError(
                    f"module differs between ranks, must be the same on all: "
                    f"rank 0 has {' '.join(a)}, rank {rank} has {' '.join(b)}"
                )
        if len(other) != len(theirs[0]):
            raise ValueError(
                f"module has {len(theirs[0]) - 1} parameters on rank 0 and {len(other) - 1} on "
                f"rank {rank}, must be the same on all"
            )
