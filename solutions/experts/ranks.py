"""Experts on real ranks: what answers may send, and what is measured."""

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from weft.grade.ranks import Misfit, Told
from weft.meter import live

NUMBER = 8  # bytes, float64


class Exchange(torch.autograd.Function):
    """Rows to the ranks of a row, and gradients the other way."""

    @staticmethod
    def forward(ctx, rows, wire, send, receive):
        ctx.way = wire, receive, send
        return wire.swap(rows, send, receive)

    @staticmethod
    def backward(ctx, gradient):
        wire, send, receive = ctx.way
        wire.answers.diary.note(state="calling", doing="the backward of wire.exchange", what="")
        try:
            return wire.swap(gradient, send, receive), None, None, None
        finally:
            wire.answers.diary.note(state="working")


class Wire:
    """Counts, rows and sums among ranks, e of which share the experts; all make the same calls."""

    OFFERS = ("tell()", "exchange()", "sum()")

    def __init__(self, world, answers, e):
        self.world, self.answers, self.e = world, answers, e
        self.row = world.rank // e * e  # the first rank of this one's row
        self.sent = self.summed = 0  # bytes

    def tell(self, counts):
        """What each rank of the row has told this one."""
        counts = self._counts("tell", "counts", counts)
        said = self.answers.meet(counts=counts)
        return [said[r]["counts"][self.world.rank - self.row] for r in self._there()]

    def exchange(self, rows, send, receive):
        """Rows that came, by sender."""
        send = self._counts("exchange", "send", send)
        receive = self._counts("exchange", "receive", receive)
        self._numbers("exchange", rows)
        if rows.dim() != 2 or len(rows) != sum(send):
            shape = list(rows.shape)
            raise Misfit(f"exchange takes rows [{sum(send)}, W], as send says, was given {shape}")
        return Exchange.apply(rows, self, send, receive)

    def sum(self, x, ranks):
        """The sum over ranks."""
        self._numbers("sum", x)
        n = self.world.size
        fits = isinstance(ranks, list | tuple) and all(type(r) is int for r in ranks)
        if not fits or len(set(ranks)) != len(ranks) or not set(ranks) <= set(range(n)):
            raise Misfit(f"sum takes a list of different ranks from 0 to {n - 1}, got {ranks!r}")
        if self.world.rank not in ranks:
            raise Misfit(f"sum takes ranks with the own one, {self.world.rank}, got {ranks!r}")
        shape = list(x.shape)
        said = self.answers.meet(ranks=sorted(ranks), shape=shape)
        for r in ranks:
            for name, mine in (("ranks", sorted(ranks)), ("shape", shape)):
                if said[r][name] != mine:
                    raise Told(
                        f"{self._case()}: rank {self.world.rank} calls sum with {name} {mine}, and"
                        f" rank {r}, one of its ranks, with {said[r][name]}"
                    )
        numels = [torch.Size(one["shape"]).numel() for one in said]
        self.summed += x.numel() * NUMBER * (len(ranks) > 1)
        total = torch.empty(shape, dtype=x.dtype)
        with _disable_current_modes():
            parts = self._gathered(x, numels)
            total.copy_(sum(parts[r] for r in sorted(ranks)).view(shape))
        return total

    def swap(self, rows, send, receive):
        """Send rows, and give what comes."""
        width, place = rows.shape[1], self.world.rank - self.row
        said = self.answers.meet(send=send, receive=receive, width=width)
        for a in self._there():
            for b in self._there():
                gone, came = said[a]["send"][b - self.row], said[b]["receive"][a - self.row]
                if gone != came:
                    raise Told(
                        f"{self._case()}: rank {a} sends rank {b} {gone} rows, which is to receive"
                        f" {came} from it"
                    )
                if gone and said[a]["width"] != said[b]["width"]:
                    widths = said[a]["width"], said[b]["width"]
                    raise Told(
                        f"{self._case()}: rank {a} sends rank {b} rows of {widths[0]} numbers, and"
                        f" has itself rows of {widths[1]}"
                    )
        self.sent += (sum(send) - send[place]) * width * NUMBER
        came = torch.empty(sum(receive), width, dtype=rows.dtype)  # counted, as a buffer would be
        with _disable_current_modes():
            numels = [sum(one["send"]) * one["width"] for one in said]
            parts = self._gathered(rows.detach(), numels)
            blocks = [
                parts[r].view(-1, width).split(said[r]["send"])[place] if numels[r] else came[:0]
                for r in self._there()
            ]
            came.copy_(torch.cat(blocks))
        return came

    def _gathered(self, x, numels):
        """What each rank gives, flat; from rank r so many numbers."""
        flat = torch.zeros(max(1, *numels, 1), dtype=torch.float64)
        flat[: x.numel()] = x.detach().reshape(-1)
        theirs = [torch.empty_like(flat) for _ in numels]
        dist.all_gather(theirs, flat, group=self.world.group())
        return [one[:count] for one, count in zip(theirs, numels, strict=True)]

    def _there(self):
        return range(self.row, self.row + self.e)

    def _case(self):
        return self.answers.diary.now["case"]

    def _counts(self, name, argument, counts):
        fits = isinstance(counts, list | tuple) and len(counts) == self.e
        if not fits or not all(type(x) is int and x >= 0 for x in counts):
            many = f"a whole number for each of the row's {self.e} ranks"
            raise Misfit(f"{name} takes {argument} with {many}, was given {counts!r}"[:500])
        return list(counts)

    def _numbers(self, name, x):
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float64:
            given = str(x.dtype).replace("torch.", "") if isinstance(x, torch.Tensor) else repr(x)
            raise Misfit(f"{name} takes a tensor of float64, was given {given}"[:500])


def one_rank(world, answers, told, lengths, e, E, k, most, D, F, seed):
    """merged on this rank: what is wrong, bytes sent, summed and alive, and rows that have to go.

    `rows` are how often a token of this rank has to go to another one.
    """
    dice = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=dice, dtype=torch.float64)  # noqa: E731
    xs, dys = ([draw(length, D) for length in lengths] for _ in range(2))
    router, up, down = draw(D, E), draw(E, D, F), draw(E, F, D)
    n, rank, mine = world.size, world.rank, E // e
    right, chosen = whole(xs, dys, router, up, down, k, most)
    replicas = slice(rank % e * mine, (rank % e + 1) * mine)
    wanted = [right["y"][rank], right["x"][rank], right["router"]]
    wanted += [right[name][replicas] for name in ("up", "down")]
    needs = chosen[rank].view(-1, e, mine).any(2).sum(0)
    given = xs[rank].clone(), dys[rank].clone(), router.clone()
    given = *given, up[replicas].clone(), down[replicas].clone()
    answers.at(told, world)
    wire = Wire(world, answers, e)
    with live() as alive:
        got = answers.merged(*given, k, most, rank, n, wire)
    answers.meet()
    return {
        "wrong": wrong_parts(got, wanted),
        "sent": wire.sent,
        "summed": wire.summed,
        "alive": alive.peak,
        "rows": int(needs.sum() - needs[rank % e]),
    }


def whole(xs, dys, router, up, down, k, most):
    """Each rank's y and dx, the other gradients, all on one process; who is kept where."""
    leaves = [w.detach().requires_grad_() for w in (*xs, router, up, down)]
    *xs, router, up, down = leaves
    ys, chosen = [], []
    for x in xs:
        p = (x @ router).softmax(-1)
        kept = torch.zeros_like(p, dtype=torch.bool)
        kept.scatter_(1, p.argsort(1, descending=True)[:, :k], True)
        kept &= kept.cumsum(0) <= most
        made = (x @ up).relu() @ down  # [E, tokens, D]
        ys.append(torch.einsum("te,etd->td", p * kept, made))
        chosen.append(kept)
    loss = sum((y * dy).sum() for y, dy in zip(ys, dys, strict=True)) / len(xs)
    *dx, drouter, dup, ddown = torch.autograd.grad(loss, leaves)
    y = [one.detach() for one in ys]
    return {"y": y, "x": dx, "router": drouter, "up": dup, "down": ddown}, chosen


def wrong_parts(got, right):
    """Where results are not the right ones, in words; nothing if they are."""
    names = "y", "dx", "drouter", "dup", "ddown"
    if not isinstance(got, list | tuple) or len(got) != len(names):
        return f"expected ({', '.join(names)}), got {got!r}"[:500]
    form = lambda x: f"{list(x.shape)} of {x.dtype}".replace("torch.", "")  # noqa: E731
    for name, x, r in zip(names, got, right, strict=True):
        if not isinstance(x, torch.Tensor) or x.shape != r.shape or x.dtype != r.dtype:
            came = form(x) if isinstance(x, torch.Tensor) else repr(x)
            return f"{name}: expected {form(r)}, got {came}"[:500]
        for place in (~((x - r).abs() <= 1e-9 * (1 + r.abs()))).nonzero().tolist()[:1]:
            both = [one[tuple(place)].item() for one in (r, x)]
            expected, came = (f"{one:.6g}" for one in both)
            if expected == came:  # they differ in digits that are not shown
                expected, came = (f"{one!r}" for one in both)
            return f"{name}[{', '.join(map(str, place))}]: expected {expected}, got {came}"
    return ""
