"""Checks of a collective's arguments, on each rank and between the ranks."""

from collections.abc import Sequence
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from weft.plan.arguments import plain, row
from weft.run.world import World

OPERATIONS = {  # what a combination leaves in its first argument
    "sum": torch.Tensor.add_,
    "mean": torch.Tensor.add_,
    "max": lambda a, b: torch.maximum(a, b, out=a),
    "min": lambda a, b: torch.minimum(a, b, out=a),
    "product": torch.Tensor.mul_,
}


def group_rank_size(
    world: World | dist.ProcessGroup, name: str = "world"
) -> tuple[dist.ProcessGroup, int, int]:
    """The group to talk to, this process's rank in it, and its size; errors call it `name`."""
    if isinstance(world, World):
        return world.group(), world.rank, world.size
    if not isinstance(world, dist.ProcessGroup):
        outside = isinstance(world, int) and world == dist.GroupMember.NON_GROUP_MEMBER
        given = "a group without this rank" if outside else f"a {type(world).__name__}"
        raise ValueError(f"{name} is {given}, must be a World or a ProcessGroup of this rank")
    return world, world.rank(), world.size()


def check_tensor(name: str, tensor: Tensor, rows: bool = False) -> None:
    """Raise ValueError unless it is a dense tensor with data, and has rows if it needs some."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}, must be a tensor")
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        raise ValueError(f"{name} is {tensor.layout} on {tensor.device}, must be dense, with data")
    if rows and not tensor.dim():
        raise ValueError(f"{name} has no dims, must have rows to deal out")


def check_operation(op: str, tensor: Tensor) -> None:
    """Raise ValueError unless `op` is one of OPERATIONS and can combine this tensor's dtype."""
    if op not in OPERATIONS:
        raise ValueError(f"op is {op!r}, must be one of {', '.join(OPERATIONS)}")
    if op == "mean" and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op is 'mean', must be another for tensor of dtype {tensor.dtype}")
    one = torch.zeros(1, dtype=tensor.dtype)
    try:
        OPERATIONS[op](one, one.clone())
    except (RuntimeError, TypeError):
        raise ValueError(f"tensor has dtype {tensor.dtype}, must be one that has {op}") from None


def check_root(root: int, n: int) -> int:
    """The root, if it is a rank of the group; else ValueError."""
    if isinstance(root, bool) or root not in range(n):
        raise ValueError(f"root is {root!r}, must be a rank from 0 to {n - 1}")
    return int(root)


def check_rows(
    name: str, rows: Sequence[int] | None, n: int, here: int, own: int | None = None
) -> list[int]:
    """The n row counts, `here` for each if None; ValueError where they do not fit the tensor.

    With `own`, entry `own` must be `here`; without, all together.
    """
    rows = [here] * n if rows is None else row(name, rows)
    if len(rows) != n or not all(isinstance(plain(x), int) and x >= 0 for x in rows):
        raise ValueError(f"{name} is {rows}, must be {n} counts of at least 0")
    found = sum(rows) if own is None else rows[own]
    if found != here:
        which = "adds up to" if own is None else f"says rank {own} has"
        raise ValueError(f"{name} {which} {found} rows, must be the {here} of tensor")
    return rows


def splits(
    tensor: Tensor, send: Sequence[int] | None, receive: Sequence[int] | None, n: int, rank: int
) -> tuple[list[int], list[int]]:
    """The rows to each rank and those from each, checked; what a rank keeps is in both."""
    have = tensor.shape[0]
    if (send is None or receive is None) and have % n:
        raise ValueError(f"tensor has {have} rows, must have a multiple of {n}, or give splits")
    even = [have // n] * n
    send = check_rows("send", even if send is None else send, n, have)
    receive = check_rows("receive", even if receive is None else receive, n, send[rank], own=rank)
    return send, receive


def agree(group: dist.ProcessGroup, tensor: Tensor, form: object, *lists: list[int]) -> None:
    """Raise ValueError on every rank unless all have the same dtype and form.

    `lists`, rows to and from each rank, have to mirror each other. It costs an exchange of a few
    numbers, which a hang does not.
    """
    n, rank = group.size(), group.rank()
    ours = crc32(repr(form).encode()), crc32(str(tensor.dtype).encode())
    send, receive = lists or ([0] * n, [0] * n)
    mine = torch.tensor([[*ours, send[r], receive[r]] for r in range(n)], device=tensor.device)
    theirs = torch.empty_like(mine)
    dist.all_to_all_single(theirs, mine, group=group)
    wrong = torch.zeros(n, dtype=torch.int64, device=tensor.device)
    for r, (shape, dtype, sent, gets) in enumerate(theirs.tolist()):
        same = shape == ours[0], dtype == ours[1], sent == receive[r], gets == send[r]
        wrong[r] = 0 if all(same) else 1 + same.index(False)
    dist.all_reduce(wrong, op=dist.ReduceOp.MAX, group=group)
    for r, kind in enumerate(wrong.tolist()):
        if kind:
            what = ("shape, or another argument,", "dtype", "send", "send")[kind - 1]
            raise ValueError(
                f"{what} of rank {r} does not fit that of the others, must be the same on every "
                f"rank (here, on rank {rank}: {form}, {tensor.dtype})"
            )
