"""A ring on real ranks: the messages that answers may send, and what is measured."""

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from weft.grade.ranks import Misfit, Told
from weft.meter import live
from weft.meter.mode import Mode

HEADER = 8  # numbers before those of a message: how many dimensions, and each
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addmv"}


class Products(Mode):
    """Counts matrix products."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in PRODUCTS
        return func(*args, **(kwargs or {}))


class Message:
    """A send or a receive that was posted."""

    OFFERS = ("wait()",)

    def __init__(self, wire, work, raw, there, into=None):
        self.wire, self.work, self.raw, self.into = wire, work, raw, into
        self.whom = f"{'to' if into is None else 'from'} rank {there}"
        self.products, self.done = wire.products.count, False

    def wait(self):
        """Wait until it is there; what was received, None for what was sent."""
        self.wire.answers.diary.note(what=self.whom)
        if self.done:
            return self.into
        if self.into is not None and self.products == self.wire.products.count:
            self.wire.idle.add(self.products)
        with _disable_current_modes():
            self.work.wait()
            self.done = True
            if self.into is None:
                return None
            shape = self.raw[1 : 1 + int(self.raw[0])].long().tolist()
            if shape != list(self.into.shape):
                posted = list(self.into.shape)
                raise Misfit(f"irecv of {posted} {self.whom}, which sent {shape} with this tag")
            flat = self.raw[HEADER : HEADER + self.into.numel()]
            self.into.copy_(flat.view(shape))
        return self.into


class Wire:
    """Messages between two ranks at a time, all as long, so that none is taken for another one."""

    OFFERS = ("isend()", "irecv()", "send()", "recv()")

    def __init__(self, world, answers, products, room, case):
        self.world, self.answers, self.products = world, answers, products
        self.room, self.case = room, case
        self.sent, self.idle, self.pending = 0, set(), []
        self.gone = [[] for _ in range(world.size)]  # tags, by rank
        self.came = [[] for _ in range(world.size)]

    def isend(self, x, to, tag=0):
        """Post a send."""
        there, tag = self._checked("isend", to, "to", tag)
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float64:
            given = str(x.dtype).replace("torch.", "") if isinstance(x, torch.Tensor) else x
            raise Misfit(f"isend takes a tensor of float64, was given {given!r}")
        self._fits("isend", x.shape)
        with _disable_current_modes():
            raw = torch.zeros(HEADER + self.room, dtype=torch.float64)
            raw[: 1 + x.dim()] = torch.tensor([x.dim(), *x.shape])
            raw[HEADER : HEADER + x.numel()] = x.detach().reshape(-1)
            work = dist.isend(raw, group=self.world.group(), group_dst=there, tag=self._tag(tag))
        self.sent += x.numel() * x.itemsize
        self.gone[there].append(tag)
        message = Message(self, work, raw, there)
        self.pending.append(message)
        return message

    def irecv(self, shape, source, tag=0):
        """Post a receive."""
        there, tag = self._checked("irecv", source, "from", tag)
        if not isinstance(shape, list | tuple) or not all(type(x) is int for x in shape):
            raise Misfit(f"irecv takes a shape, was given {shape!r}")
        self._fits("irecv", shape)
        into = torch.empty(list(shape), dtype=torch.float64)  # counted, as a buffer would be
        with _disable_current_modes():
            raw = torch.empty(HEADER + self.room, dtype=torch.float64)
            work = dist.irecv(raw, group=self.world.group(), group_src=there, tag=self._tag(tag))
        self.came[there].append(tag)
        return Message(self, work, raw, there, into)

    def send(self, x, to, tag=0):
        """Send, and wait until it is through."""
        return self.isend(x, to, tag).wait()

    def recv(self, shape, source, tag=0):
        """What a rank sends."""
        return self.irecv(shape, source, tag).wait()

    def finish(self):
        """Wait for all ranks; Told where a send has no receive, or a receive no send."""
        said = self.answers.meet(gone=self.gone, came=self.came)
        case = self.answers.diary.now["case"]
        for a, one in enumerate(said):
            for b, other in enumerate(said):
                gone, came = sorted(one["gone"][b]), sorted(other["came"][a])
                if gone != came:
                    raise Told(
                        f"{case}: rank {a} sends rank {b} messages with tags {gone}, and that posts"
                        f" receives for {came}"
                    )
        for message in self.pending:
            if not message.done:
                message.work.wait()

    def _tag(self, tag):
        return self.case * 1000 + tag

    def _fits(self, name, shape):
        """Refuse what is no message of this exercise."""
        size = 1
        for x in shape:
            size *= x
        if not 0 < size <= self.room or len(shape) >= HEADER:
            raise Misfit(
                f"{name} takes up to {self.room} numbers here, which is all keys and values of the"
                f" case, and their gradients, twice; was given {list(shape)}"
            )

    def _checked(self, name, rank, whom, tag):
        if type(rank) is not int or rank not in set(range(self.world.size)) - {self.world.rank}:
            others = f"another of the ranks 0 to {self.world.size - 1}"
            raise Misfit(f"{name} takes {others}, was given {rank!r}")
        if type(tag) is not int or not 0 <= tag < 1000:
            raise Misfit(f"{name} takes a tag from 0 to 999, was given {tag!r}")
        self.answers.diary.note(what=f"{whom} rank {rank}")
        return rank, tag


def one_rank(world, answers, told, positions, window, H, G, K, seed):
    """gradients on this rank: what is wrong, bytes sent and alive, how often it waited idly."""
    dice = torch.Generator().manual_seed(seed)
    T = sum(map(len, positions))
    q, do = torch.randn(2, H, T, K, generator=dice, dtype=torch.float64)
    k, v = torch.randn(2, G, T, K, generator=dice, dtype=torch.float64)
    lse, delta, *right = whole(q, k, v, do, positions, window)
    begin = sum(map(len, positions[: world.rank]))
    own = slice(begin, begin + len(positions[world.rank]))
    mine = [x[:, own].clone() for x in (q, k, v, do, lse, delta)]
    answers.at(told, world)
    products = Products()
    wire = Wire(world, answers, products, 8 * T * G * K, answers.diary.now["at"])
    rows = [list(row) for row in positions]
    with live() as alive, products:
        got = answers.gradients(*mine, rows, window, world.rank, wire)
    wire.finish()
    wrong = wrong_parts(got, [x[:, own] for x in right])
    return {"wrong": wrong, "sent": wire.sent, "alive": alive.peak, "idle": len(wire.idle)}


def whole(q, k, v, do, positions, window):
    """Log-sum-exps, deltas and the gradients of q, k and v, all scores at hand."""
    at = torch.tensor([place for row in positions for place in row])
    back = at[:, None] - at
    hidden = (back < 0) | (back >= (window or len(at) + int(at.max())))
    heads = len(q) // len(k)
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    q, keys, values = given[0], *(x.repeat_interleave(heads, 0) for x in given[1:])
    scores = (q @ keys.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
    o = scores.softmax(-1) @ values
    return (
        scores.logsumexp(-1).detach(),
        (do * o).sum(-1).detach(),
        *torch.autograd.grad(o, given, do),
    )


def wrong_parts(got, right):
    """Where gradients are not the right ones, in words; nothing if they are."""
    if not isinstance(got, list | tuple) or len(got) != 3:
        return f"expected (dq, dk, dv), got {got!r}"[:500]
    form = lambda x: f"{list(x.shape)} of {x.dtype}".replace("torch.", "")  # noqa: E731
    for name, x, r in zip(("dq", "dk", "dv"), got, right, strict=True):
        if not isinstance(x, torch.Tensor) or x.shape != r.shape or x.dtype != r.dtype:
            return (
                f"{name}: expected {form(r)}, got {form(x) if isinstance(x, torch.Tensor) else x}"
            )
        for place in (~((x - r).abs() <= 1e-9)).nonzero().tolist()[:1]:
            expected, came = (f"{one[tuple(place)].item():.6g}" for one in (r, x))
            return f"{name}[{', '.join(map(str, place))}]: expected {expected}, got {came}"
    return ""
