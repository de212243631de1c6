"""A parallel block on real ranks: what answers may send, and what is measured."""

from itertools import accumulate

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from weft.grade.ranks import Misfit, Told
from weft.meter import live

NUMBER = 8  # bytes, float64
GIVEN = "x", "dy", "gain", "wq", "wkv", "wo", "gate_up", "down"
NAMES = "y", "dx", "dgain", "dwq", "dwkv", "dwo", "dgate_up", "ddown"


class Wire:
    """Gathers, scatters and sums among ranks; all make the same calls."""

    OFFERS = ("gather()", "scatter()", "sum()")

    def __init__(self, world, answers, lengths):
        self.world, self.answers, self.lengths = world, answers, lengths
        self.sent = 0  # bytes

    def gather(self, rows):
        """The rows of all ranks, in order."""
        mine, T = self.lengths[self.world.rank], sum(self.lengths)
        self._alike("gather", self._rows("gather", rows, mine))
        width = rows.shape[1]
        self.sent += (T - mine) * width * NUMBER  # the whole, without what this rank had
        whole = torch.empty(T, width, dtype=rows.dtype)  # counted, as a buffer would be
        with _disable_current_modes():
            whole.copy_(torch.cat(self._all(rows, [n * width for n in self.lengths], (-1, width))))
        return whole

    def scatter(self, rows):
        """This rank's rows of the sum over ranks."""
        mine, T = self.lengths[self.world.rank], sum(self.lengths)
        self._alike("scatter", self._rows("scatter", rows, T))
        width = rows.shape[1]
        self.sent += (T - mine) * width * NUMBER  # the summand, without what stays here
        begin = sum(self.lengths[: self.world.rank])
        own = torch.empty(mine, width, dtype=rows.dtype)
        with _disable_current_modes():
            total = sum(self._all(rows, [T * width] * self.world.size, (T, width)))
            own.copy_(total[begin : begin + mine])
        return own

    def sum(self, x):
        """The sum over ranks."""
        self._numbers("sum", x)
        self._alike("sum", list(x.shape))
        n = self.world.size
        self.sent += 2 * (n - 1) * x.numel() * NUMBER // n
        total = torch.empty(x.shape, dtype=x.dtype)
        with _disable_current_modes():
            total.copy_(sum(self._all(x, [x.numel()] * n, x.shape)))
        return total

    def _all(self, x, numels, shape):
        """What each rank gives, in a shape; from rank r so many numbers."""
        flat = torch.zeros(max(1, *numels, 1), dtype=torch.float64)
        flat[: x.numel()] = x.detach().reshape(-1)
        theirs = [torch.empty_like(flat) for _ in numels]
        dist.all_gather(theirs, flat, group=self.world.group())
        return [one[:count].view(shape) for one, count in zip(theirs, numels, strict=True)]

    def _alike(self, name, shape):
        """Told unless all ranks give what fits together; `shape` is what has to be the same."""
        said = self.answers.meet(shape=shape)
        for r, one in enumerate(said):
            if one["shape"] != shape:
                raise Told(
                    f"{self.answers.diary.now['case']}: rank {self.world.rank} gives {name} {shape}"
                    f" numbers, and rank {r} {one['shape']}"
                )

    def _rows(self, name, rows, count):
        """The width of what should have so many rows."""
        self._numbers(name, rows)
        if rows.dim() != 2 or len(rows) != count:
            raise Misfit(f"{name} takes rows [{count}, W] here, was given {list(rows.shape)}")
        return [rows.shape[1]]

    def _numbers(self, name, x):
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float64:
            given = str(x.dtype).replace("torch.", "") if isinstance(x, torch.Tensor) else repr(x)
            raise Misfit(f"{name} takes a tensor of float64, was given {given}"[:500])


def one_rank(world, answers, told, lengths, heads, hidden, D, K, seed):
    """block on this rank: what is wrong, bytes sent and alive."""
    dice = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=dice, dtype=torch.float64)  # noqa: E731
    rank, T, H, F = world.rank, sum(lengths), sum(heads), sum(hidden)
    x, dy, gain, wkv = draw(T, D), draw(T, D), draw(D), draw(D, 2 * K)
    wq, wo, gate, up, down = (
        draw(*shape) for shape in ((D, H * K), (H * K, D), (D, F), (D, F), (F, D))
    )
    whole = x, gain, wq, wkv, wo, gate, up, down
    y, (dx, dgain, dwq, dwkv, dwo, dgate, dup, ddown) = one_process(whole, dy, K)
    ends = list(accumulate(lengths)), [K * h for h in accumulate(heads)], list(accumulate(hidden))
    sizes = lengths[rank], K * heads[rank], hidden[rank]
    mine, columns, units = (
        slice(end[rank] - size, end[rank]) for end, size in zip(ends, sizes, strict=True)
    )

    def cut(wq, wkv, wo, gate, up, down):
        both = torch.cat([gate[:, units], up[:, units]], 1)
        return wq[:, columns], wkv, wo[columns], both, down[units]

    wanted = y[mine], dx[mine], dgain, *cut(dwq, dwkv, dwo, dgate, dup, ddown)
    given = x[mine], dy[mine], gain, *cut(wq, wkv, wo, gate, up, down)
    copies = [w.clone() for w in given]
    answers.at(told, world)
    wire = Wire(world, answers, lengths)
    with live() as alive:
        got = answers.block(*copies, list(lengths), rank, wire)
    answers.meet()
    wrong = wrong_parts(got, wanted)
    for name, one, before in zip(GIVEN, copies, given, strict=True):
        if not wrong and not torch.equal(one, before):
            wrong = f"{name}: expected left as it was, got changed"
    return {"wrong": wrong, "sent": wire.sent, "alive": alive.peak}


def one_process(whole, dy, K):
    """y and all gradients, in the order of `whole`."""
    leaves = [w.detach().requires_grad_() for w in whole]
    x, gain, wq, wkv, wo, gate, up, down = leaves
    normed = torch.nn.functional.rms_norm(x, gain.shape, gain, 1e-6)
    q = (normed @ wq).unflatten(1, (-1, K)).transpose(0, 1)
    k, v = (one.expand_as(q) for one in (normed @ wkv).split(K, 1))
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    attention = heads.transpose(0, 1).flatten(1) @ wo
    y = x + attention + (torch.nn.functional.silu(normed @ gate) * (normed @ up)) @ down
    return y.detach(), torch.autograd.grad((y * dy).sum(), leaves)


def wrong_parts(got, right):
    """Where results are not the right ones, in words; nothing if they are."""
    if not isinstance(got, list | tuple) or len(got) != len(NAMES):
        return f"expected ({', '.join(NAMES)}), got {got!r}"[:500]
    form = lambda x: f"{list(x.shape)} of {x.dtype}".replace("torch.", "")  # noqa: E731
    for name, x, r in zip(NAMES, got, right, strict=True):
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
