"""Send and receive the tensors that pass between the ranks of a pipeline."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from weft.plan.schedule import COMPUTE, RECEIVES, SENDS, Action, Plan, messages, peer
from weft.run.pipeline.clock import Clock
from weft.run.world import World

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
MOST_DIMS = 8
DATA, CLOCK, HEADER = range(3)  # a message is a tensor; it may have a time and a shape beside it

Message = tuple[str, int, int]  # Action.message: direction, stage that made it, microbatch


class Messages:
    """This rank's end of every message of a lowered plan.

    A tag says which tensor it is, so that none can be taken for another. The shape and dtype at
    a boundary between stages go ahead of its first tensor and are remembered, for each form of
    input, after that; a gradient has the form of the tensor that it is the gradient of.
    """

    def __init__(self, plan: Plan, world: World, clock: Clock):
        self._plan, self._clock = plan, clock
        self._group, self._device = world.group(), world.device
        self._forms: dict[tuple, dict[int, tuple]] = {}
        self._coming: dict[Message, tuple] = {}
        self._sent: deque = deque()
        # In the order that a fused plan agrees on, waiting for an old send cannot deadlock.
        self._most_sent = 2 * plan.p if plan.lowered == "fused" else float("inf")

    def begin(self, input_form: tuple) -> bool:
        """Prepare for a step; True if the shapes at this rank's boundaries are known already."""
        known = input_form in self._forms
        self._form = self._forms.setdefault(input_form, {})
        return known

    # --- buffered: messages travel by themselves ---------------------------------------------

    def send(self, action: Action, tensor: Tensor, time: float) -> None:
        """Send what an action has made; `finish`, or a later send, waits for its end."""
        for part in self._outgoing(action, tensor, time):
            self._sent.append((self._start(dist.isend, action, *part), part))
        while len(self._sent) > self._most_sent:
            self._sent.popleft()[0].wait()

    def post(self, action: Action) -> None:
        """Make room for a tensor that will come and start receiving it, without waiting."""
        parts = self._incoming(action)
        works = [self._start(dist.irecv, action, *part) for part in parts]
        self._coming[action.message] = parts, works

    def take(self, message: Message) -> tuple[Tensor, float | None]:
        """Wait for a tensor that was posted; the time that it was made, if the clock is logical."""
        parts, works = self._coming.pop(message)
        for work in works:
            work.wait()
        return parts[0][0], parts[1][0].item() if len(parts) > 1 else None

    def finish(self) -> None:
        """Wait until everything sent has been received."""
        while self._sent:
            self._sent.popleft()[0].wait()

    # --- rendezvous: both ends wait until a message is through -------------------------------

    def exchange(
        self, actions: Sequence[Action], tensors: Sequence[Tensor | None], now: float
    ) -> list[tuple[Tensor, float | None]]:
        """Pass messages all at once and wait for all; (tensor, other end's time) for each.

        `tensors` are those to send, None for a receive. Both ends of a message tell each other
        their time, `now`, if the clock is logical.
        """
        known = all(self._boundary(action) in self._form for action in actions)
        ops, results, works = [], [], []
        for action, tensor in zip(actions, tensors, strict=True):
            if action.kind in SENDS:
                mine, theirs = self._outgoing(action, tensor, now), self._times()
            else:
                mine, theirs = self._times(now), self._incoming(action)
            calls = [(dist.isend, *part) for part in mine]
            back = [(dist.irecv, *part) for part in theirs]
            # Each end's order mirrors the other's, for transports that know no tags.
            calls = calls + back if action.kind in SENDS else back + calls
            if known:
                ops += [self._op(call, action, *part) for call, *part in calls]
            else:  # one after the other, which the agreed order allows as well
                works += [self._start(call, action, *part) for call, *part in calls]
            data = tensor if action.kind in SENDS else theirs[0][0]
            results.append((data, theirs[-1][0] if self._clock.logical else None))
        for work in works or dist.batch_isend_irecv(ops):
            work.wait()
        return [(data, None if time is None else time.item()) for data, time in results]

    # --- what a message consists of ----------------------------------------------------------

    def _outgoing(self, action: Action, tensor: Tensor, time: float) -> list[tuple[Tensor, int]]:
        self._introduce(action, tensor)
        return [(tensor.contiguous(), DATA), *self._times(time)]

    def _incoming(self, action: Action) -> list[tuple[Tensor, int]]:
        shape, dtype = self._form_of(action)
        return [(torch.empty(shape, dtype=dtype, device=self._device), DATA), *self._times()]

    def _times(self, time: float = 0.0) -> list[tuple[Tensor, int]]:
        """The time beside a message: only a logical clock needs it."""
        if not self._clock.logical:
            return []
        return [(torch.tensor([time], dtype=torch.float64, device=self._device), CLOCK)]

    def _introduce(self, action: Action, tensor: Tensor) -> None:
        """Send the shape and dtype of a boundary's tensors ahead of the first one."""
        boundary, form = self._boundary(action), (tensor.shape, tensor.dtype)
        if boundary in self._form:
            if self._form[boundary] != form:
                raise ValueError(
                    f"the output of stage {boundary} is {tuple(tensor.shape)} {tensor.dtype} at "
                    f"microbatch {action.microbatch}, must be {self._form[boundary]} as before"
                )
            return
        if tensor.dtype not in DTYPES or tensor.dim() > MOST_DIMS:
            raise ValueError(
                f"the output of stage {boundary} is {tuple(tensor.shape)} {tensor.dtype}, "
                f"must have a dtype among {DTYPES} and at most {MOST_DIMS} dims"
            )
        self._form[boundary] = form
        header = [DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
        header += [0] * (2 + MOST_DIMS - len(header))
        header = torch.tensor(header, device=self._device)
        self._sent.append((self._start(dist.isend, action, header, HEADER), header))

    def _form_of(self, action: Action) -> tuple:
        """The shape and dtype of the tensor to expect, received first if they are not known."""
        boundary = self._boundary(action)
        if boundary not in self._form:
            header = torch.empty(2 + MOST_DIMS, dtype=torch.int64, device=self._device)
            self._start(dist.irecv, action, header, HEADER).wait()
            dtype, dims, *shape = header.tolist()
            self._form[boundary] = torch.Size(shape[:dims]), DTYPES[dtype]
        return self._form[boundary]

    def _boundary(self, action: Action) -> int:
        """The stage whose output has the form of this message's tensor."""
        way, maker, _ = action.message
        return maker if way == "F" else maker - 1

    def _tag(self, action: Action, part: int) -> int:
        way, maker, microbatch = action.message
        number = ("FB".index(way) * self._plan.stages + maker) * self._plan.m + microbatch
        return 3 * number + part

    def _start(self, call: Callable, action: Action, tensor: Tensor, part: int) -> dist.Work:
        other = "group_dst" if call is dist.isend else "group_src"
        other = {other: peer(self._plan, action)}
        return call(tensor, group=self._group, tag=self._tag(action, part), **other)

    def _op(self, call: Callable, action: Action, tensor: Tensor, part: int) -> dist.P2POp:
        other, tag = peer(self._plan, action), self._tag(action, part)
        return dist.P2POp(call, tensor, group=self._group, tag=tag, group_peer=other)


def hoist(plan: Plan, row: Iterable[Action], ahead: int) -> tuple[Action, ...]:
    """Post receives early: the next `ahead` that will be consumed are open at any time.

    A message that finds its receive posted does not wait for it. Only for transports that match
    messages by tag; others need the order that both ends agree on.

    >>> from weft.plan.comm import lower
    >>> from weft.plan.pipeline import one_f_one_b
    >>> plan = lower(one_f_one_b(p=2, m=2))
    >>> print(*hoist(plan, plan.rows[1], ahead=2))
    RECV_F0 RECV_F1 F0 BW0 SEND_B0 F1 BW1 SEND_B1
    """
    row = tuple(action for action in row if action.kind not in RECEIVES)
    needs = [messages(plan, action)[0] if action.kind in COMPUTE else None for action in row]
    receives = deque(filter(None, needs))
    hoisted = [receives.popleft() for _ in range(min(ahead, len(receives)))]
    for action, consumed in zip(row, needs, strict=True):
        hoisted.append(action)
        if consumed and receives:
            hoisted.append(receives.popleft())
    return tuple(hoisted)


def gathered(mine: Tensor, world: World) -> Tensor:
    """All-gather: row r of the result is what rank r has.

    Done as an all-to-all of equal parts, nobody passes on what others sent, so that all have it
    one hop after the last rank is done, where a ring takes p - 1.
    """
    if world.size == 1:
        return mine[None]
    parts = mine.to(world.device).repeat(world.size, 1)
    rows = torch.empty_like(parts)
    dist.all_to_all_single(rows, parts, group=world.group())
    return rows.cpu()
