"""Stages 0, 1 and 2 of ZeRO, and what a step is in every stage.

One stage differs from the next in what a rank keeps, and so in a few short methods: `keeps` says
what, `open` and `reduce` make of gradients what is kept of their mean, `spread` brings the new
weights back; and a stage that keeps no whole gradients cannot wait with them (`no_sync`).
Rajbhandari et al. 2020, section 5; buckets that are sent while backward
goes on are Li et al. 2020's, section 3.2.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import WeakMethod, finalize

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable
from torch.optim import Optimizer

from weft.plan.zero import bucketed, share
from weft.ref.precision import LossScaler
from weft.run.collectives import Group, broadcast, group_rank_size
from weft.run.zero.buckets import Bucket, Named, Piece
from weft.run.zero.checks import (
    check_gradient,
    check_how,
    check_optimizer,
    check_positive,
    check_same,
    trained,
)
from weft.run.zero.comm_thread import lane
from weft.run.zero.update import Update

BUCKET = 2**22  # elements; 16 MiB of fp32


class DataParallel:
    """Stage 0: every rank keeps everything and takes every step.

    A bucket's mean is taken on the lane as soon as backward has brought all its
    gradients, while backward goes on. Buckets are sent in one order on all ranks,
    whatever the order in which gradients come, and those that lack some when
    backward ends have zeros there.
    """

    stage, kind = 0, Bucket

    def __init__(
        self,
        module: nn.Module,
        optimizer: Callable[[Iterable], Optimizer],
        world: Group,
        bucket: int = BUCKET,
        dtype: torch.dtype | None = None,
        scaler: LossScaler | None = None,
        unused: bool = False,
    ):
        group, self.rank, self.n = group_rank_size(world)
        bucket = check_how(bucket, dtype, scaler)
        named = trained(module, world)
        check_same(module, (self.stage, bucket, dtype, unused), group)
        self.module, self.dtype, self.lane = module, dtype, lane(group)
        copy_frozen(module, dtype, self.lane.group)
        self.buckets = [self.lay(part) for part in self.parts(named, bucket)]
        pieces = [piece.parameter for piece in self.pieces()]
        nothing = nn.Parameter(self.buckets[0].weights.new_empty(0))
        self.optimizer = check_optimizer(optimizer, pieces or [nothing])
        self.update = Update(self.optimizer, self.buckets, group, scaler, self.stage > 0, unused)
        self._sending = self._due = True  # _due: a gradient is not yet averaged
        self._running, self._sent, self._tickets = False, 0, []
        self._listen()

    # --- what the stages differ in ----------------------------------------------------------------

    def parts(self, named: Sequence[Named], bucket: int) -> Iterator[list[Named]]:
        """The parameters of each bucket, in the order in which they are sent."""
        for indices in bucketed([parameter.numel() for _, parameter in named], bucket):
            yield [named[i] for i in indices]

    def lay(self, named: list[Named]) -> Bucket:
        """A bucket with rank 0's weights in its row, and this rank's pieces."""
        row = torch.cat([parameter.detach().flatten() for _, parameter in named])
        broadcast(row, self.lane.group)
        return self.kind(named, self.keeps(len(row)), row, self.dtype)

    def keeps(self, numel: int) -> range:
        """Which elements of a row this rank's optimizer has."""
        return range(numel)

    def open(self, bucket: Bucket) -> None:
        """Make a bucket ready for gradients; of a mean, each rank brings a part."""
        if bucket.mine is not None:
            bucket.gradients /= self.n
            bucket.mine = None

    def reduce(self, bucket: Bucket) -> None:
        """On the lane: the gradients of all ranks become one."""
        self.lane.ring("all_reduce", bucket.gradients)
        bucket.mine = bucket.gradients

    def spread(self) -> None:
        """Bring new weights to where they are computed with."""

    # --- a step, as every stage takes it ----------------------------------------------------------

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The module's output; floating inputs are rounded to `dtype`, if any."""
        inputs = [self._fit(x) for x in inputs]
        return self.module(*inputs, **{name: self._fit(x) for name, x in named.items()})

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within add up here; one outside, or a step, sends all."""
        before, self._sending = self._sending, False
        try:
            yield
        finally:
            self._sending = before

    def step(self) -> None:
        """Move the weights by the mean of all gradients; not if one overflowed."""
        self._complete()
        self.update.step()
        self.refresh()

    def clip(self, max_norm: float) -> float:
        """Shorten the whole gradient to `max_norm`; how long it was."""
        check_positive("max_norm", max_norm)
        self._complete()
        return self.update.clip(max_norm)

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the module's weights what the pieces are, on all ranks."""
        for bucket in self.buckets:
            if bucket.masters is not None:
                bucket.home.copy_(bucket.masters)
        self.spread()

    def zero_grad(self) -> None:
        """Forget all gradients, and a backward pass that failed."""
        for ticket in self._tickets:
            ticket.result()
        for bucket in self.buckets:
            bucket.clear()
        self.update.forget()
        self._due, self._running, self._sent = True, False, 0
        self._tickets.clear()

    # --- what is in it ----------------------------------------------------------------------------

    def pieces(self) -> list[Piece]:
        """What this rank's optimizer holds of the parameters, bucket by bucket."""
        return [piece for bucket in self.buckets for piece in bucket.pieces]

    def state_dict(self) -> dict[str, Tensor]:
        """The module's, with whole weights, copied; every rank calls it together."""
        whole = {}
        for bucket in self.buckets:
            with self.whole(bucket):
                whole |= {id(p): p.detach().clone() for p in bucket.parameters}
        state = self.module.state_dict(keep_vars=True)
        return {name: whole[id(x)] if id(x) in whole else x.clone() for name, x in state.items()}

    def whole(self, bucket: Bucket) -> AbstractContextManager:
        """Within it, the bucket's parameters have all their elements."""
        return nullcontext()

    # --- gradients on their way -------------------------------------------------------------------

    def _listen(self) -> None:
        """Have backward tell of each gradient, for as long as this object lives."""
        take, handles = WeakMethod(self._take), []
        for bucket in self.buckets:
            for i, parameter in enumerate(bucket.parameters):
                hook = partial(_tell, take, bucket, i)
                handles.append(parameter.register_post_accumulate_grad_hook(hook))
        finalize(self, remove, handles)

    def _take(self, bucket: Bucket, i: int, parameter: nn.Parameter) -> None:
        """A gradient is there: put it into its row; send the rows that are full."""
        check_gradient(bucket.names[i], parameter.grad)
        self._begin()
        if bucket.missing == len(bucket.names):
            self.open(bucket)
        bucket.add(i, parameter.grad, 1 / self.n)
        parameter.grad = None
        if self._sending:
            for following in self.buckets[self._sent :]:
                if following.missing:
                    break
                self._send()

    def _begin(self) -> None:
        """A backward pass runs: have it say when it is over."""
        if not self._running:
            self._running = self._due = True
            self.update.forget()  # what was clipped is added to
            Variable._execution_engine.queue_callback(self._end)

    def _send(self) -> None:
        bucket = self.buckets[self._sent]
        if bucket.missing == len(bucket.names):
            self.open(bucket)
        bucket.fill()
        self._tickets.append(self.lane.submit(self.reduce, bucket))
        self._sent += 1

    def _end(self) -> None:
        """The backward pass is over."""
        if self._sending:
            self._average()
        for bucket in self.buckets:
            bucket.missing = len(bucket.names)
        self._running = False

    def _average(self) -> None:
        """Send what is left, and wait until all is averaged."""
        while self._sent < len(self.buckets):
            self._send()
        for ticket in self._tickets:
            ticket.result()
        self._tickets.clear()
        self._due, self._sent = False, 0

    def _complete(self) -> None:
        if self._due:
            self._average()

    def _fit(self, x: Any) -> Any:
        fits = self.dtype is None or not isinstance(x, Tensor) or not x.is_floating_point()
        return x if fits else x.to(self.dtype)


class Zero1(DataParallel):
    """Stage 1: a rank has the optimizer's state of its share alone, and steps that.

    Then it needs the mean of that share only, and the others' new weights: an
    all-reduce is those two halves, so no more is sent than in stage 0.
    """

    stage = 1

    def keeps(self, numel: int) -> range:
        return share(numel, self.n, self.rank)

    def open(self, bucket: Bucket) -> None:
        if bucket.mine is not None:
            bucket.gradients[: bucket.kept.start] = 0
            bucket.gradients[bucket.kept.stop :] = 0
            bucket.mine = None

    def reduce(self, bucket: Bucket) -> None:
        self.lane.ring("reduce_scatter", bucket.gradients)
        bucket.mine = bucket.part(bucket.gradients)

    def spread(self) -> None:
        lane = self.lane
        for bucket in self.buckets:
            ticket = lane.submit(lane.ring, "all_gather", bucket.weights)
        ticket.result()


class Zero2(Zero1):
    """Stage 2: a rank keeps the gradients of its share alone, and frees the row.

    So what is accumulated has to be averaged after every microbatch, and `no_sync`
    changes nothing. Two rows are there at a time, one being filled and one sent.
    """

    stage = 2

    def no_sync(self) -> AbstractContextManager:
        return nullcontext()

    def open(self, bucket: Bucket) -> None:
        for ticket in self._tickets[:-1]:
            ticket.result()

    def reduce(self, bucket: Bucket) -> None:
        before = bucket.mine
        super().reduce(bucket)
        mean = bucket.mine
        bucket.mine = mean.clone() if before is None else before.add_(mean)
        bucket.drop()


def copy_frozen(module: nn.Module, dtype: torch.dtype | None, group: dist.ProcessGroup) -> None:
    """Parameters that are not trained stay whole on every rank: rank 0's, in `dtype`."""
    for parameter in module.parameters():
        if not parameter.requires_grad or not parameter.numel():
            broadcast(parameter.data, group)
            if dtype is not None and parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)


def _tell(take: WeakMethod, bucket: Bucket, i: int, parameter: nn.Parameter) -> None:
    method = take()
    if method is not None:
        method(bucket, i, parameter)


def remove(handles: list) -> None:
    for handle in handles:
        handle.remove()
