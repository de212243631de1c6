"""Collectives made of sends and receives: the plan's steps, executed by real ranks.

A backend's own collective does what its authors chose, which may not be what a formula counts:
gloo's reduce-scatter is an all-reduce of which most is thrown away. Here the list of steps that
weft.plan.collectives describes, and that was checked and priced there, is what is sent.

Every rank of a group calls the same function with tensors of the same dtype and fitting sizes.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import cache, lru_cache, partial

import torch
import torch.distributed as dist
from torch import Tensor

from weft.plan import collectives as plan
from weft.plan.arguments import chosen, instance, whole
from weft.plan.collectives import Send, Steps, chunks
from weft.run.collectives.checks import (
    OPERATIONS,
    agree,
    check_operation,
    check_root,
    check_rows,
    check_tensor,
    group_rank_size,
    splits,
)
from weft.run.world import World

Group = World | dist.ProcessGroup
ALGORITHMS: dict[str, Callable[[int], Steps]] = {
    "ring": plan.ring_all_reduce,
    "tree": plan.tree_all_reduce,
    "double_tree": partial(plan.double_tree_all_reduce, rounds=4),
    "halving_doubling": plan.halving_doubling_all_reduce,
    "direct": plan.direct_all_reduce,
}


def run(
    steps: Steps,
    held: MutableMapping[int, Tensor],
    world: Group,
    op: str = "sum",
    fresh: bool = False,
) -> None:
    """Execute this rank's part of some steps on the chunks that it holds or gets.

    `held` has a flat tensor for each of these chunks. What comes is written there, or
    combined with what is there; with `fresh` a combined chunk is a new tensor in `held`, and
    the old one stays as it was. A step begins when the one before it is over for this rank.
    Chunks travel in pieces: while one is combined the next is on its way, so two buffers of
    a piece for each chunk that is coming are all it takes.
    """
    group, rank, _ = group_rank_size(world)
    instance(Steps, steps=steps)
    combine = OPERATIONS[chosen("op", op, OPERATIONS)]
    for coming, going in _mine(steps, rank):
        _step(coming, going, held, group, combine, fresh)


def _step(
    coming: Sequence[Send],
    going: Sequence[Send],
    held: MutableMapping[int, Tensor],
    group: dist.ProcessGroup,
    combine: Callable[[Tensor, Tensor], Tensor],
    fresh: bool,
) -> None:
    """Exchange all chunks piece by piece; one is taken while the next travels."""
    there = {s.chunk: held[s.chunk] for s in (*coming, *going)}
    sums = [s.chunk for s in coming if s.reduce]
    new = {chunk: torch.empty_like(held[chunk]) for chunk in sums} if fresh else {}
    before = None
    for begin in range(0, max(1, *(flat.nbytes for flat in there.values())), PIECE):
        piece = _piece(there, begin)
        begun = _exchange(coming, going, piece, _piece(new, begin), group)
        if before:
            _take(coming, *before, combine, fresh)
        before = piece, *begun
    _take(coming, *before, combine, fresh)
    held.update(new)


def _exchange(
    coming: Sequence[Send],
    going: Sequence[Send],
    held: Mapping[int, Tensor],
    new: Mapping[int, Tensor],
    group: dist.ProcessGroup,
) -> tuple[list[Tensor], list[dist.Work]]:
    """Begin to send and receive: what will have come, and what to wait for.

    A chunk that is copied is received in place, unless what is there is still being
    sent; one that is combined where it is new, or in a buffer.
    """
    busy = {send.chunk for send in going}
    came = []
    for send in coming:
        there, apart = held[send.chunk], send.reduce or send.chunk in busy
        if send.chunk in new:
            there = new[send.chunk]
        elif apart:
            there = torch.empty_like(there)
        came.append(there)
    receives = zip(coming, came, strict=True)
    calls = [
        *((dist.irecv, s.chunk, s.source, tensor) for s, tensor in receives),
        *((dist.isend, s.chunk, s.target, held[s.chunk]) for s in going),
    ]
    messages = [
        dist.P2POp(call, _bytes(tensor), group=group, group_peer=peer, tag=chunk)
        for call, chunk, peer, tensor in calls
        if tensor.numel()
    ]
    return came, dist.batch_isend_irecv(messages) if messages else []


def _take(
    coming: Sequence[Send],
    held: Mapping[int, Tensor],
    came: Sequence[Tensor],
    works: Sequence[dist.Work],
    combine: Callable[[Tensor, Tensor], Tensor],
    fresh: bool,
) -> None:
    """When all has come and gone, copy each received tensor to its place, or combine the two."""
    for work in works:
        work.wait()
    for send, tensor in zip(coming, came, strict=True):
        if send.reduce:
            combine(*((tensor, held[send.chunk]) if fresh else (held[send.chunk], tensor)))
        elif tensor is not held[send.chunk]:
            held[send.chunk].copy_(tensor)


PIECE = 2**22  # bytes of a chunk that travel together


def _piece(held: Mapping[int, Tensor], begin: int) -> dict[int, Tensor]:
    """PIECE bytes of every chunk, or what is left of it, from byte `begin` on."""
    if begin == 0 and all(flat.nbytes <= PIECE for flat in held.values()):
        return {chunk: flat.detach() for chunk, flat in held.items()}
    cut = slice(begin, begin + PIECE)
    return {chunk: _bytes(flat)[cut].view(flat.dtype) for chunk, flat in held.items()}


def all_reduce(
    tensor: Tensor,
    world: Group,
    op: str = "sum",
    algorithm: str | Steps = "ring",
    check: bool = False,
) -> Tensor:
    """Every rank's tensor becomes the sum of all, in place, and is returned.

    `op` is "sum", "mean", "max", "min" or "product"; `algorithm` one of ALGORITHMS, or
    steps for an all-reduce such as `hierarchical_all_reduce(nodes, local)`. With `check` the ranks
    first tell each other what they were given, and all raise ValueError if it differs.
    """
    group, _, n = group_rank_size(world)
    check_tensor("tensor", tensor)
    check_operation(op, tensor)
    steps = _chosen(algorithm, n)
    if check:
        agree(group, tensor, (tuple(tensor.shape), op, len(steps)))
    flat = tensor.detach().contiguous().view(-1)  # a copy, where it was not
    held = dict(enumerate(flat.split(chunks(flat.numel(), steps.chunks))))
    run(steps, held, world, op)
    if op == "mean":
        flat /= n
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view_as(tensor))
    return tensor


def reduce_scatter(tensor: Tensor, world: Group, op: str = "sum", check: bool = False) -> Tensor:
    """Rank r gets the sum of everybody's r-th part of the rows, as a new tensor.

    The rows are cut as torch.tensor_split cuts them, so they need not divide; the tensor itself
    stays as it is. A rank sends all but its own part, once.
    """
    group, rank, n = group_rank_size(world)
    check_tensor("tensor", tensor, rows=True)
    check_operation(op, tensor)
    if check:
        agree(group, tensor, (tuple(tensor.shape), op))
    parts = tensor.detach().contiguous().tensor_split(n)
    held = {i: part.reshape(-1) for i, part in enumerate(parts)}
    run(_made(plan.ring_reduce_scatter, n), held, world, op, fresh=True)
    mine = held[rank].clone() if n == 1 else held[rank]
    return (mine.div_(n) if op == "mean" else mine).view(parts[rank].shape)


def all_gather(
    tensor: Tensor, world: Group, rows: Sequence[int] | None = None, check: bool = False
) -> Tensor:
    """Everybody's tensors one below the other, by rank, as a new tensor on every rank.

    `rows` says how many rows each rank brings, where they are not all as many as here.
    """
    group, rank, n = group_rank_size(world)
    check_tensor("tensor", tensor, rows=True)
    rows = check_rows("rows", rows, n, tensor.shape[0], own=rank)
    if check:
        agree(group, tensor, (tuple(tensor.shape[1:]), rows))
    whole = tensor.new_empty((sum(rows), *tensor.shape[1:]))
    parts = whole.split(rows)
    parts[rank].copy_(tensor.detach())
    held = {i: part.view(-1) for i, part in enumerate(parts)}
    run(_made(plan.ring_all_gather, n), held, world)
    return whole


def all_to_all(
    tensor: Tensor,
    world: Group,
    send: Sequence[int] | None = None,
    receive: Sequence[int] | None = None,
    check: bool = False,
) -> Tensor:
    """Rank t gets everybody's t-th part of the rows, one below the other, as a new tensor.

    `send` are the rows for each rank, `receive` those from each; None cuts evenly. Nothing that
    a rank keeps for itself is sent.
    """
    group, rank, n = group_rank_size(world)
    check_tensor("tensor", tensor, rows=True)
    send, receive = splits(tensor, send, receive, n, rank)
    if check:
        agree(group, tensor, tuple(tensor.shape[1:]), send, receive)
    result = tensor.new_empty((sum(receive), *tensor.shape[1:]))
    going, coming = tensor.detach().contiguous().split(send), result.split(receive)
    coming[rank].copy_(going[rank])
    held = {rank * n + t: part.view(-1) for t, part in enumerate(going)}
    held |= {s * n + rank: part.view(-1) for s, part in enumerate(coming)}
    run(_made(plan.all_to_all, n), held, world)
    return result


def broadcast(
    tensor: Tensor, world: Group, root: int = 0, parts: int | None = None, check: bool = False
) -> Tensor:
    """Every rank's tensor becomes the root's, in place, and is returned.

    It passes along a chain in `parts` parts, so that all links work at the same time. None is 1
    for two ranks, where there is one link only, and else 8.
    """
    group, _, n = group_rank_size(world)
    check_tensor("tensor", tensor)
    root = check_root(root, n)
    parts = (1 if n <= 2 else 8) if parts is None else whole("parts", parts, most=10**6)
    if check:
        agree(group, tensor, (tuple(tensor.shape), root, parts))
    steps = plan.broadcast(n, root, parts)
    flat = tensor.detach().contiguous().view(-1)
    run(steps, dict(enumerate(flat.split(chunks(flat.numel(), parts)))), world)
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view_as(tensor))
    return tensor


_made = cache(lambda make, n: make(n))  # the same object each time, which _mine finds at once


def _chosen(algorithm: str | Steps, n: int) -> Steps:
    if isinstance(algorithm, Steps):
        if (algorithm.op, algorithm.n) != ("all_reduce", n):
            raise ValueError(
                f"algorithm is for {algorithm.op} on {algorithm.n} ranks, "
                f"must be for all_reduce on {n}"
            )
        return algorithm
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"algorithm is {algorithm!r}, must be one of {', '.join(ALGORITHMS)}, or Steps"
        )
    return _made(ALGORITHMS[algorithm], n)


@lru_cache(maxsize=64)
def _mine(steps: Steps, rank: int) -> list[tuple[list[Send], list[Send]]]:
    """What this rank gets and what it sends, in the steps that concern it."""
    rows = (
        ([s for s in step if s.target == rank], [s for s in step if s.source == rank])
        for step in steps
    )
    return [row for row in rows if any(row)]


def _bytes(tensor: Tensor) -> Tensor:
    """The same memory as bytes, so that any dtype can be sent."""
    return tensor.view(torch.uint8)
