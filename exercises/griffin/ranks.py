"""A convolution on real ranks: the messages that answers may send, and what is measured."""

import torch
import torch.distributed as dist

from weft.grade.ranks import Misfit, Told

HEADER, DATA = range(2)  # tags


class Wire:
    """Sends that wait for nobody, and a clock: a message is there a round after it was sent."""

    def __init__(self, world, answers, width):
        self.world, self.answers, self.width, self.group = world, answers, width, world.group()
        self.pending, self.clock, self.received = [], 0, 0
        self.sent, self.came = [0] * world.size, [0] * world.size  # messages, by rank

    def send(self, rows, to):
        """Send rows to a rank."""
        there = self._other("send", to)
        if not isinstance(rows, torch.Tensor) or rows.dim() != 2 or rows.shape[1] != self.width:
            shape = tuple(rows.shape) if isinstance(rows, torch.Tensor) else rows
            raise Misfit(f"send takes rows [m, {self.width}], was given {shape!r}")
        if not len(rows) or rows.dtype != torch.float64:
            given = f"{len(rows)} of {rows.dtype}".replace("torch.", "")
            raise Misfit(f"send takes at least one row of float64, was given {given}")
        header, data = torch.tensor([self.clock, len(rows)]), rows.detach().contiguous().clone()
        self.sent[there] += 1
        for part, tag in ((header, HEADER), (data, DATA)):
            work = dist.isend(part, group=self.group, group_dst=there, tag=tag)
            self.pending.append((work, part))

    def recv(self, source):
        """What a rank sends next."""
        there = self._other("recv", source)
        header = torch.empty(2, dtype=torch.int64)
        dist.recv(header, group=self.group, group_src=there, tag=HEADER)
        theirs, count = header.tolist()
        rows = torch.empty(count, self.width, dtype=torch.float64)
        dist.recv(rows, group=self.group, group_src=there, tag=DATA)
        self.came[there] += 1
        self.clock = max(self.clock, theirs + 1)
        self.received += rows.nbytes
        return rows

    def finish(self):
        """Wait for all ranks; Told where a message was sent that nobody received."""
        said = self.answers.meet(sent=self.sent, came=self.came)
        for a, one in enumerate(said):
            for b, other in enumerate(said):
                if (gone := one["sent"][b]) > (came := other["came"][a]):
                    case = self.answers.diary.now["case"]
                    messages = f"{gone} message{'' if gone == 1 else 's'}"
                    raise Told(f"{case}: rank {a} sends rank {b} {messages}, which receives {came}")
        for work, _ in self.pending:
            work.wait()

    def _other(self, name, rank):
        if type(rank) is not int or rank not in set(range(self.world.size)) - {self.world.rank}:
            others = f"another of the ranks 0 to {self.world.size - 1}"
            raise Misfit(f"{name} takes {others}, was given {rank!r}")
        whom = "to" if name == "send" else "from"
        self.answers.diary.note(what=f"{whom} rank {rank}")
        return rank


def one_rank(world, answers, told, lengths, begins, taps, width, seed):
    """convolve on this rank: what is wrong, the bytes that came, and the last round."""
    dice = torch.Generator().manual_seed(seed)
    every = torch.randn(sum(lengths), width, generator=dice, dtype=torch.float64)
    weight = torch.randn(taps, width, generator=dice, dtype=torch.float64)
    start = sum(lengths[: world.rank])
    own = slice(start, start + lengths[world.rank])
    x, right = every[own].clone(), convolution(every, weight, begins)[own]
    answers.at(told, world)
    wire = Wire(world, answers, width)

    def send(rows, to):
        return wire.send(rows, to)

    def recv(source):
        return wire.recv(source)

    y = answers.convolve(x, weight, list(lengths), list(begins), world.rank, send, recv)
    wire.finish()
    return {"wrong": differs(y, right), "received": wire.received, "rounds": wire.clock}


def convolution(x, weight, begins):
    """Each document by itself, each tap by itself."""
    parts = []
    for rows in torch.tensor_split(x, begins[1:]):
        y = torch.zeros_like(rows)
        for j, factor in enumerate(weight[: len(rows)]):
            y[j:] += factor * rows[: len(rows) - j]
        parts.append(y)
    return torch.cat(parts)


def differs(got, right):
    """Where rows are not the right ones, in words; nothing if they are."""
    form = lambda x: f"{list(x.shape)} of {x.dtype}".replace("torch.", "")  # noqa: E731
    if not isinstance(got, torch.Tensor) or got.shape != right.shape or got.dtype != right.dtype:
        return f"expected {form(right)}, got {form(got) if isinstance(got, torch.Tensor) else got}"
    for place in (~((got - right).abs() <= 1e-9)).nonzero().tolist()[:1]:
        expected, came = (f"{x[tuple(place)].item():.6g}" for x in (right, got))
        return f"y[{place[0]}, {place[1]}]: expected {expected}, got {came}"
    return ""
