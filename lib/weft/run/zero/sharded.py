"""Stages 0, 1 and 2 of ZeRO, and what a step is in every stage.

One stage differs from the next in what a rank keeps, and so in a few short methods:

    keeps           which elements of a bucket this rank's optimizer has
    reduce          average a bucket's gradients over ranks, and keep what is kept of the mean
    resume_sum      make a mean the sum over ranks again, so that more can be added to it
    wait_for_room   bound how many buckets have a flat buffer of gradients
    gather_weights  bring new weights from the ranks that have stepped to all others
    no_sync         leave gradients unaveraged, which only a rank that keeps them whole can do

Rajbhandari et al. 2020, section 5; buckets that are sent while backward goes on are Li et al.
2020's, section 3.2.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from weft.plan.arguments import whole
from weft.plan.zero import BUCKET, bucketed, shard
from weft.ref.precision import LossScaler
from weft.run.collectives import Group, broadcast, group_rank_size
from weft.run.zero.buckets import Bucket, Named, Piece
from weft.run.zero.checks import Own, check_gradient, check_how, check_positive, check_same, trained
from weft.run.zero.comm_thread import comm_thread
from weft.run.zero.module_face import ModuleFace
from weft.run.zero.optimizer import Groups, made_optimizer
from weft.run.zero.units import Units, named_units
from weft.run.zero.update import Update


class DataParallel(ModuleFace):
    """Stage 0: every rank keeps everything and takes every step.

    The thread for communication averages a bucket as soon as backward has brought all
    its gradients, while backward goes on. Buckets are sent in one order on all ranks,
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
        units: Units | None = None,
        buffers: str = "own",
        groups: Groups | None = None,
        hooks: bool = True,
        own: Own | None = None,
        over: int | None = None,
    ):
        group, self.rank, self.n = group_rank_size(world)
        bucket = check_how(bucket, dtype, scaler, buffers)
        named = trained(module, world, own)
        self.over = self.n if over is None else whole("over", over)
        self.units = None if units is None else named_units(module, units)
        names = [name for name, x in module.named_modules() if x in (self.units or ())]
        self._hooked = self.hooked(hooks)
        how = self.stage, bucket, dtype, unused, names, buffers, self._hooked, self.over
        check_same(module, how, group, own)
        self.module, self.dtype, self.comm = module, dtype, comm_thread(group)
        self.buffers, self.group = buffers, group
        copy_frozen(module, dtype, self.comm.group, own)
        self.buckets = [self.make_bucket(part) for part in self.split(named, bucket)]
        shapes = {name: parameter.shape for name, parameter in named}
        like = self.buckets[0].weights
        self.optimizer = made_optimizer(optimizer, self.pieces(), shapes, groups, like)
        self.optimizer.zero_grad = lambda *given, **named: self.zero_grad()
        self.update = Update(self.optimizer, self.buckets, group, scaler, self.stage > 0, unused)
        self._sending = self._due = True  # _due: a gradient is not yet averaged
        self._running, self._sent, self._tickets = False, 0, []
        self._hooks = list(self.register_hooks())

    # --- what the stages differ in ----------------------------------------------------------------

    def hooked(self, hooks: bool) -> bool:
        """Whether backward hands gradients over."""
        return bool(hooks)

    def split(self, named: Sequence[Named], bucket: int) -> Iterator[list[Named]]:
        """The parameters of each bucket, in the order in which they are sent."""
        for indices in bucketed([parameter.numel() for _, parameter in named], bucket):
            yield [named[i] for i in indices]

    def make_bucket(self, named: list[Named]) -> Bucket:
        """A bucket with rank 0's weights in its flat buffer, and this rank's pieces."""
        flat = torch.cat([parameter.detach().flatten() for _, parameter in named])
        broadcast(flat, self.comm.group)
        return self.kind(named, self.keeps(len(flat)), flat, self.dtype)

    def keeps(self, numel: int) -> range:
        """Which elements of a flat buffer this rank's optimizer has."""
        return range(numel)

    def reduce(self, bucket: Bucket) -> None:
        """Sum the flat buffer of gradients over ranks, which each added 1 / n of theirs.

        Where they are divided `over` another number, what comes out is no mean, but called so.
        """
        self.comm.ring("all_reduce", bucket.gradients)
        bucket.mean = bucket.gradients

    def resume_sum(self, bucket: Bucket) -> None:
        """If the gradients are the mean, divide them by n: the next sum over ranks restores it."""
        if bucket.mean is not None:
            bucket.gradients /= self.n
            bucket.mean = None

    def wait_for_room(self) -> None:
        """Wait until one more bucket may have a flat buffer of gradients: here, all may."""

    def gather_weights(self) -> None:
        """Bring new weights to all ranks: here, each has made them itself."""

    # --- a step, as every stage takes it ----------------------------------------------------------

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The module's output; floating inputs are rounded to `dtype`, if any."""
        inputs = [self._fit(x) for x in inputs]
        with self.around_forward():
            return self.module(*inputs, **{name: self._fit(x) for name, x in named.items()})

    @contextmanager
    def around_forward(self) -> Iterator[None]:
        """Around a forward of the module that is not called through this, for want of dtypes."""
        for bucket in self.buckets:
            bucket.show()
        if self.buffers == "rank 0" and self.module.training:
            self.copy_buffers()
        yield

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
        for bucket in self.buckets:
            if bucket.here:
                bucket.check_memory()
                bucket.take_writes()
        self.update.step()
        self.refresh()

    def take(self) -> None:
        """Begin to average the gradients that the parameters have, where there are no `hooks`.

        Every rank calls it as often. What was averaged since the last step is added to.
        """
        if self._hooked:
            raise RuntimeError("zero has hooks, which take gradients during backward")
        self._finish()
        self.update.forget()
        for bucket in self.buckets:
            self._prepare(bucket)
            for i, parameter in enumerate(bucket.parameters):
                if parameter.grad is not None:
                    check_gradient(bucket.names[i], parameter.grad)
                    bucket.add(i, parameter.grad, 1 / self.over)
                    parameter.grad = None
            self._send_next()
            bucket.missing = len(bucket.names)
        self._due = False

    def clip(self, max_norm: float) -> float:
        """Shorten the whole gradient to `max_norm`; how long it was."""
        check_positive("max_norm", max_norm)
        self._complete()
        return self.update.clip(max_norm)

    def squares(self, counts: Callable[[str], bool] = lambda name: True) -> Tensor:
        """The sum of the gradient's squares over what this rank alone keeps: their sum is all.

        With `counts` only of parameters for whose names it is true: where several Zeros share one
        model, one of those that have a parameter counts it. `shorten` is what it is for.
        """
        self._complete()
        return self.update.squares(counts)

    def shorten(self, norm: float, max_norm: float) -> None:
        """Shorten a gradient that is `norm` long, other Zeros' part of it included."""
        check_positive("max_norm", max_norm)
        self._complete()
        self.update.shorten(norm, max_norm)

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the module's weights what the pieces are, on all ranks."""
        for bucket in self.buckets:
            if bucket.masters is not None:
                bucket.shard.copy_(bucket.masters)
        self.gather_weights()

    def zero_grad(self) -> None:
        """Forget all gradients, and a backward pass that failed."""
        for ticket in self._tickets:
            ticket.result()
        for bucket in self.buckets:
            bucket.clear()
            bucket.show()
        self.update.forget()
        self._due, self._running, self._sent = True, False, 0
        self._tickets.clear()

    def close(self) -> None:
        """Give the module back, with whole weights and without hooks; every rank calls it.

        Until then the hooks keep this object alive as long as the module.
        """
        while self._hooks:
            self._hooks.pop().remove()

    # --- what is in it ----------------------------------------------------------------------------

    def pieces(self) -> list[Piece]:
        """What this rank's optimizer holds of the parameters, bucket by bucket."""
        return [piece for bucket in self.buckets for piece in bucket.pieces]

    def shapes(self) -> dict[str, torch.Size]:
        """Of the parameters that are trained, each whole, by name."""
        named = (zip(bucket.names, bucket.shapes, strict=True) for bucket in self.buckets)
        return {name: shape for bucket in named for name, shape in bucket}

    def whole(self, bucket: Bucket) -> AbstractContextManager:
        """Within it, the bucket's parameters have all their elements."""
        return nullcontext()

    # --- gradients on their way -------------------------------------------------------------------

    def register_hooks(self) -> Iterator[RemovableHandle]:
        """Have backward hand over each gradient that is complete."""
        for bucket in self.buckets if self._hooked else ():
            for i, parameter in enumerate(bucket.parameters):
                hook = partial(self._take, bucket, i)
                yield parameter.register_post_accumulate_grad_hook(hook)

    def _take(self, bucket: Bucket, i: int, parameter: nn.Parameter) -> None:
        """A gradient is there: put it into its bucket; send the buckets that are full."""
        self._begin_backward()
        check_gradient(bucket.names[i], parameter.grad)
        self._prepare(bucket)
        bucket.add(i, parameter.grad, 1 / self.over)
        parameter.grad = None
        if self._sending:
            for following in self.buckets[self._sent :]:
                if following.missing:
                    break
                self._send_next()

    def _prepare(self, bucket: Bucket) -> None:
        """Before the first gradient of a backward pass, make room for it in the bucket."""
        if bucket.missing == len(bucket.names):
            self.wait_for_room()
            self.resume_sum(bucket)

    def _begin_backward(self) -> None:
        """A backward pass runs: have it call back when it is over."""
        if not self._running:
            self._running = self._due = True
            self.update.forget()  # what was clipped is added to
            for bucket in self.buckets:
                bucket.show()
            Variable._execution_engine.queue_callback(self._end_backward)

    def _send_next(self) -> None:
        """Have the next bucket in the order averaged, with zeros for what is missing."""
        bucket = self.buckets[self._sent]
        self._prepare(bucket)
        bucket.fill()
        self._tickets.append(self.comm.submit(self.reduce, bucket))
        self._sent += 1

    def _end_backward(self) -> None:
        """The backward pass is over: average what is left, unless that is to wait."""
        if self._sending:
            self._average()
        for bucket in self.buckets:
            bucket.missing = len(bucket.names)
            bucket.hide()
        self._running = False

    def _average(self) -> None:
        """Send what is left, and wait until all is averaged."""
        while self._sent < len(self.buckets):
            self._send_next()
        self._finish()
        self._due = False

    def _finish(self) -> None:
        """Wait until all that was sent is averaged."""
        for ticket in self._tickets:
            ticket.result()
        self._tickets.clear()
        self._sent = 0

    def _complete(self) -> None:
        if self._due and self._hooked:
            self._average()
        elif self._due:
            self.take()
        self._finish()

    def _fit(self, x: Any) -> Any:
        fits = self.dtype is None or not isinstance(x, Tensor) or not x.is_floating_point()
        return x if fits else x.to(self.dtype)


class Zero1(DataParallel):
    """Stage 1: a rank has the optimizer's state of its shard alone, and steps that.

    Then it needs the mean of that shard only, and the others' new weights: an
    all-reduce is those two halves, so no more is sent than in stage 0.
    """

    stage = 1

    def keeps(self, numel: int) -> range:
        return shard(numel, self.n, self.rank)

    def reduce(self, bucket: Bucket) -> None:
        self.comm.ring("reduce_scatter", bucket.gradients)
        bucket.mean = bucket.part(bucket.gradients)

    def resume_sum(self, bucket: Bucket) -> None:
        """Zero all but the shard's mean: the next sum has each shard's once."""
        if bucket.mean is not None:
            bucket.gradients[: bucket.kept.start] = 0
            bucket.gradients[bucket.kept.stop :] = 0
            bucket.mean = None

    def gather_weights(self) -> None:
        for bucket in self.buckets:
            ticket = self.comm.submit(self.comm.ring, "all_gather", bucket.weights)
        ticket.result()


class Zero2(Zero1):
    """Stage 2: a rank keeps the gradients of its shard alone, and frees the flat buffer.

    So every microbatch is averaged, even within `no_sync`, and the shard's means
    are added up. Two flat buffers are there at a time, one being filled and one sent.
    """

    stage = 2

    def no_sync(self) -> AbstractContextManager:
        return nullcontext()

    def reduce(self, bucket: Bucket) -> None:
        before = bucket.mean
        super().reduce(bucket)
        mean = bucket.mean
        bucket.mean = mean.clone() if before is None else before.add_(mean)
        bucket.free_gradients()

    def resume_sum(self, bucket: Bucket) -> None:
        """Nothing: the flat buffer is a new one, and the mean lies apart from it."""

    def wait_for_room(self) -> None:
        for ticket in self._tickets[:-1]:
            ticket.result()


def copy_frozen(
    module: nn.Module, dtype: torch.dtype | None, group: dist.ProcessGroup, own: Own | None
) -> None:
    """Own parameters that are not trained stay whole on every rank: rank 0's, in `dtype`."""
    for name, parameter in module.named_parameters():
        if own is not None and not own(name):
            continue
        if not parameter.requires_grad or not parameter.numel():
            broadcast(parameter.data, group)
            if dtype is not None and parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)
