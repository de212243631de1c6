"""A ring of real ranks that runs both ways: what answers may send, and what is measured."""

import torch
import torch.distributed as dist

from weft.grade.ranks import Misfit, Told
from weft.meter import live, traffic

UNLIKE = "both sides know whose chunk is on its way, and how many elements it has"
SIDES = (("right", 1), ("left", -1))  # what is sent, and to which neighbour


def data(length, rank, seed):
    """One rank's tensor: whole numbers, so that every order of adding gives the same sum.

    They are large, so that the sum is another one in a narrower format.
    """
    dice = torch.Generator().manual_seed(seed + 100 * rank)
    return torch.randint(-(1 << 40), 1 << 40, (length,), generator=dice).double()


class Ring:
    """The links to the neighbours on both sides, and how often they were used."""

    def __init__(self, world, answers):
        self.answers, self.group = answers, world.group()
        self.rank, self.n = world.rank, world.size
        self.calls = 0

    def exchange(self, right, left, from_left, from_right):
        """Send to both neighbours and receive from both, at the same time."""
        for outgoing in (right, left):
            if not isinstance(outgoing, torch.Tensor) or outgoing.dim() != 1:
                shape = tuple(outgoing.shape) if isinstance(outgoing, torch.Tensor) else outgoing
                raise Misfit(f"exchange takes flat tensors, was given {shape!r}"[:300])
            if outgoing.dtype != torch.float64:
                kind = str(outgoing.dtype).removeprefix("torch.")
                raise Misfit(f"exchange takes float64, as the tensor is, was given {kind}")
        for count in (from_left, from_right):
            if type(count) is not int or count < 0:
                raise Misfit(f"exchange takes numbers of elements that come, was given {count!r}")
        self.meet(
            {"right": len(right), "left": len(left)}, {"right": from_left, "left": from_right}
        )
        self.calls += 1
        came = right.new_empty(from_left), right.new_empty(from_right)
        works = []
        for tag, (incoming, (_, way)) in enumerate(zip(came, SIDES, strict=True)):
            source = (self.rank - way) % self.n
            if len(incoming):
                works += [dist.irecv(incoming, group=self.group, group_src=source, tag=tag)]
        for tag, (outgoing, (_, way)) in enumerate(zip((right, left), SIDES, strict=True)):
            target = (self.rank + way) % self.n
            if len(outgoing):
                outgoing = outgoing.contiguous()
                works += [dist.isend(outgoing, group=self.group, group_dst=target, tag=tag)]
        for work in works:
            work.wait()
        return came

    def meet(self, gives, takes):
        """Wait for all ranks' calls; Told where one wants another length than its neighbour sends.

        What goes right comes from the left.
        """
        said = self.answers.meet(gives=gives, takes=takes)
        for name, way in SIDES:
            for r, one in enumerate(said):
                at = (r - way) % self.n
                other = said[at]
                if one["takes"][name] != other["gives"][name]:
                    raise Told(
                        f"{self.answers.diary.now['case']}: call {one['calls']} of exchange: rank "
                        f"{r} takes {one['takes'][name]} elements ({one['where']}), but rank {at} "
                        f"sends {other['gives'][name]} to its {name} ({other['where']})",
                        UNLIKE,
                    )


def one_rank(world, answers, told, sizes, seed):
    """both_ways on this rank: what is wrong with its result, what it sent, its bytes alive."""
    n, rank, length = world.size, world.rank, sum(sizes)
    tensor, before = (data(length, rank, seed) for _ in range(2))
    right_sum = sum(data(length, r, seed) for r in range(n)).split(sizes)[rank]
    ring = Ring(world, answers)

    def exchange(right, left, from_left, from_right):
        return ring.exchange(right, left, from_left, from_right)

    answers.at(told, world)
    with traffic() as sent, live() as alive:
        result = answers.both_ways(rank, list(sizes), tensor, exchange)
    answers.meet()
    wrong = differs(result, right_sum)
    if not wrong and not torch.equal(tensor, before):
        wrong = "the tensor that was given has changed"
    measured = {"wrong": wrong, "calls": ring.calls}
    return measured | {"sent": sent.bytes.total(), "alive": alive.peak}


def differs(got, right):
    """Where the result is not the sum, in words; nothing if it is."""
    if not isinstance(got, torch.Tensor) or got.shape != right.shape or got.dtype != right.dtype:
        is_one = isinstance(got, torch.Tensor)
        shown = f"{list(got.shape)} of {got.dtype}".replace("torch.", "") if is_one else repr(got)
        return f"expected a flat tensor of {len(right)} float64, got {shown}"[:500]
    for i in (got != right).nonzero().flatten().tolist()[:1]:
        near = abs(got[i] - right[i]) < 1e-5 * abs(right[i])
        digits = ": the last digits were lost, in another format" if near else ""
        return f"element {i}: expected {right[i].item():.0f}, got {got[i].item():.17g}{digits}"
    return ""
