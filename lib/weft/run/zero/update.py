"""The optimizer's step on what a rank keeps, such that all ranks take it, or none.

Three things about a gradient can only be known together: whether all of it is finite, how long
it is, and whether a parameter has one at all.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from weft.ref.precision import LossScaler
from weft.run.zero.buckets import Bucket


class Update:
    """An optimizer of the buckets' pieces, and a loss scaler, if there is one.

    `shared` says that a rank has a shard of the gradients, as in all stages but 0.
    With `unused` the ranks tell each other which parameters have a gradient.
    Without, a mean of nothing but zeros, for one that has none here, is none.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        buckets: Sequence[Bucket],
        group: dist.ProcessGroup,
        scaler: LossScaler | None,
        shared: bool,
        unused: bool,
    ):
        self.optimizer, self.buckets, self.group = optimizer, buckets, group
        self.scaler, self.shared, self.unused = scaler, shared, unused
        self.device = buckets[0].weights.device
        self.scaler_view = ScalerView(optimizer, self.device)
        self.flats: list[Tensor] = []  # the gradients, while the pieces have them
        self.stepping = False
        optimizer.register_step_pre_hook(self._refuse)

    def _refuse(self, *given: object) -> None:
        """Before the optimizer's step: only ours has gradients for it, and tells the module."""
        if not self.stepping:
            raise RuntimeError("zero.optimizer.step() would move nothing: call zero.step()")

    def prepare(self) -> None:
        """Give the pieces their gradients, unscaled; none where no rank has one."""
        if self.flats:
            return
        known = self._known()
        for bucket in self.buckets:
            flat = bucket.mean
            flat = flat if bucket.masters is None else flat.to(bucket.masters.dtype)
            self.flats.append(flat)
            parts = flat.split([piece.parameter.numel() for piece in bucket.pieces])
            for piece, i, part in zip(bucket.pieces, bucket.holders, parts, strict=True):
                if i in bucket.used or (part.any() if known is None else known[bucket, i]):
                    piece.parameter.grad = part
        if self.scaler is not None:
            finite = all(bool(flat.isfinite().all()) for flat in self.flats)
            self.scaler_view.mark(self._anywhere([not finite])[0])
            self.scaler.unscale_(self.scaler_view)

    def _known(self) -> dict[tuple[Bucket, int], bool] | None:
        """Which parameters have a gradient on some rank, if that is to be asked."""
        if not self.unused:
            return None
        each = [(bucket, i) for bucket in self.buckets for i in range(len(bucket.names))]
        found = self._anywhere([i in bucket.used for bucket, i in each])
        return dict(zip(each, found, strict=True))

    def _anywhere(self, flags: list[bool]) -> list[bool]:
        """Which flags are up on at least one rank: a byte is sent for each."""
        told = torch.tensor(flags, dtype=torch.uint8, device=self.device)
        if self.group.size() > 1:
            dist.all_reduce(told, dist.ReduceOp.MAX, group=self.group)
        return list(map(bool, told.tolist()))

    def clip(self, max_norm: float) -> float:
        """Shorten the gradient to `max_norm` if it is longer; how long it was.

        Squares add up, so a rank's own sum of them is all it has to tell.
        """
        self.prepare()
        squares = sum(map(square_sum, self.flats))
        if self.shared:
            dist.all_reduce(squares, group=self.group)
        norm = math.sqrt(squares)
        self.shorten(norm, max_norm)
        return norm

    def squares(self, counts: Callable[[str], bool]) -> Tensor:
        """The sum of squares of the parameters that count, of those of which none else tells."""
        self.prepare()
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        if self.shared or self.group.rank() == 0:
            for bucket, flat in zip(self.buckets, self.flats, strict=True):
                parts = flat.split([piece.parameter.numel() for piece in bucket.pieces])
                for piece, part in zip(bucket.pieces, parts, strict=True):
                    if counts(piece.name):
                        total += square_sum(part)
        return total

    def shorten(self, norm: float, max_norm: float) -> None:
        """Multiply a gradient that is `norm` long so that it is at most `max_norm`."""
        self.prepare()
        shorter = min(1.0, max_norm / (norm + 1e-6))  # torch's clip_grad_norm_
        for flat in self.flats:
            flat.mul_(shorter)

    def step(self) -> None:
        """Let the optimizer step, unless a gradient overflowed on any rank."""
        self.prepare()
        self.stepping = True
        try:
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.scaler_view)
                self.scaler.update()
        finally:
            self.stepping = False
        self.forget()

    def forget(self) -> None:
        """Take the gradients from the pieces, if they have them."""
        for bucket in self.buckets if self.flats else ():
            for piece in bucket.pieces:
                piece.parameter.grad = None
        self.flats.clear()


PART = 4096  # elements whose squares are added up in the flat buffer's own dtype


def square_sum(flat: Tensor) -> Tensor:
    """The sum of a flat buffer's squares in float64, part by part.

    Added up in fp32 as a whole it would be off by 0.4 % at 50 million elements.
    """
    even = len(flat) // PART * PART
    parts = flat[:even].view(-1, PART), flat[even:].view(1, -1)
    norms = [torch.linalg.vector_norm(part, dim=1).double() for part in parts]
    return torch.cat(norms).square().sum()


class ScalerView:
    """The optimizer with one parameter more, whose gradient says whether any rank overflowed.

    A loss scaler looks for infinities in the gradients it is shown. What one rank keeps
    may have one and what others keep none; with this, all scalers see it, and skip the
    step together.
    """

    def __init__(self, optimizer: Optimizer, device: torch.device):
        self._optimizer = optimizer
        self._flag = nn.Parameter(torch.zeros(1, device=device))

    @property
    def param_groups(self) -> list[dict]:
        return [*self._optimizer.param_groups, {"params": [self._flag]}]

    def mark(self, overflow: bool) -> None:
        """Make the flag's gradient infinite, or 0."""
        self._flag.grad = torch.full_like(self._flag, math.inf if overflow else 0.0)

    def step(self) -> None:
        self._optimizer.step()
