"""Attention in both directions on real ranks: what they send with, and what is measured."""

import torch
import torch.distributed as dist

from weft.grade.ranks import Misfit, Told

HEADER, DATA = range(2)  # tags
DIMS = 8  # at most, of a message


class Comm:
    """Sends that do not wait, and a clock: a message is there a round after it was sent."""

    OFFERS = ("send()", "recv()", "rank", "n")

    def __init__(self, world, answers):
        self.world, self.answers, self.group = world, answers, world.group()
        self.rank, self.n = world.rank, world.size
        self.clock, self.sent, self.pending = 0, 0, []
        self.went, self.came = [0] * self.n, [0] * self.n  # messages, by rank

    def send(self, tensor, to):
        """Send to a rank; it is on its way when this returns."""
        there = self._other("send", to)
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float64:
            given = tensor.dtype if isinstance(tensor, torch.Tensor) else tensor
            raise Misfit(f"send takes a tensor of float64, was given {given!r}")
        if not tensor.numel() or tensor.dim() > DIMS:
            shape = tuple(tensor.shape)
            raise Misfit(f"send takes a number or more, in at most {DIMS} dims, was given {shape}")
        self.sent += tensor.nbytes
        self.went[there] += 1
        shape = [*tensor.shape, *[-1] * (DIMS - tensor.dim())]
        self._post(torch.tensor([self.clock + 1, *shape]), there, HEADER)
        self._post(tensor.detach().contiguous().clone(), there, DATA)

    def recv(self, source):
        """What a rank sends next."""
        there = self._other("recv", source)
        header = torch.empty(1 + DIMS, dtype=torch.int64)
        dist.recv(header, group=self.group, group_src=there, tag=HEADER)
        clock, *shape = header.tolist()
        tensor = torch.empty([length for length in shape if length >= 0], dtype=torch.float64)
        dist.recv(tensor, group=self.group, group_src=there, tag=DATA)
        self.came[there] += 1
        self.clock = max(self.clock, clock)
        return tensor

    def finish(self):
        """Wait for all ranks; Told where a message was sent that nobody received."""
        said = self.answers.meet(went=self.went, came=self.came)
        for a, one in enumerate(said):
            for b, other in enumerate(said):
                if (went := one["went"][b]) > (came := other["came"][a]):
                    case, more = self.answers.diary.now["case"], "s" * (went > 1)
                    sent = f"rank {a} sends rank {b} {went} message{more}"
                    raise Told(f"{case}: {sent}, of which it receives {came}")
        for work, _ in self.pending:
            work.wait()

    def _post(self, tensor, there, tag):
        work = dist.isend(tensor, group=self.group, group_dst=there, tag=tag)
        self.pending.append((work, tensor))  # which has to live until then

    def _other(self, name, rank):
        if type(rank) is not int or rank not in set(range(self.n)) - {self.rank}:
            others = f"another of the ranks 0 to {self.n - 1}"
            raise Misfit(f"{name} takes {others}, was given {rank!r}")
        whom = "to" if name == "send" else "from"
        self.answers.diary.note(what=f"{whom} rank {rank}")
        return rank


def piece(length, K, V, rank, seed):
    """One rank's q, k, v and g."""
    dice = torch.Generator().manual_seed(seed + 100 * rank)
    draw = lambda *shape: torch.randn(*shape, generator=dice, dtype=torch.float64)  # noqa: E731
    return draw(length, K), draw(length, K), draw(length, V), -draw(length).square() / 4


def one_way(k, v, g):
    """The state after each token, from the first on."""
    S = k.new_zeros(k.shape[1], v.shape[1])
    for k_t, v_t, g_t in zip(k, v, g, strict=True):
        S = g_t.exp() * S + torch.outer(k_t, v_t)
        yield S


def one_rank(world, answers, told, lengths, K, V, seed):
    """both_ways on this rank: what is wrong, bytes sent, and the round of the last message."""
    answers.at(told, world)
    pieces = [piece(length, K, V, r, seed) for r, length in enumerate(lengths)]
    q, k, v, g = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    states = list(one_way(k, v, g))
    back = list(one_way(k.flip(0), v.flip(0), g.flip(0)))[::-1]
    first = sum(lengths[: world.rank])
    own = range(first, first + lengths[world.rank])
    right = [q[t] @ (states[t] + back[t]) - (k[t] @ q[t]) * v[t] for t in own]
    right = torch.stack(right) if right else v.new_zeros(0, V)
    comm = Comm(world, answers)
    got = answers.both_ways(*pieces[world.rank], comm)
    comm.finish()
    return {"wrong": _unlike(got, right), "sent": comm.sent, "round": comm.clock}


def _unlike(got, right):
    """Where the rows of o are not the right ones, in words; nothing if they are."""
    if not isinstance(got, torch.Tensor) or got.shape != right.shape or got.dtype != right.dtype:
        shown = f"{tuple(got.shape)} of {got.dtype}" if isinstance(got, torch.Tensor) else repr(got)
        return f"expected o of {tuple(right.shape)} and float64, got {shown[:80]}"
    off = ~((got - right).abs() <= 1e-10 * (1 + right.abs()))
    for place in off.nonzero().tolist()[:1]:
        x, y = right[tuple(place)].item(), got[tuple(place)].item()
        return f"o{place} of its rows: expected {x:.9g}, got {y:.9g}"
    return ""
