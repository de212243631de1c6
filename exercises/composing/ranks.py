"""Clipping on real ranks: what answers may send, and what is measured."""

from itertools import product

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from weft.grade.ranks import Misfit, Told

NUMBER = 8  # bytes, float64
AXES = "p", "r", "s", "t"  # the slowest first


def places(sizes):
    """The place of each rank, in order."""
    return [dict(zip(AXES, at, strict=True)) for at in product(*(range(sizes[x]) for x in AXES))]


class Wire:
    """Sums among the ranks of any axes; all ranks make the same calls."""

    OFFERS = ("scatter()", "sum()")

    def __init__(self, world, answers, sizes):
        self.world, self.answers, self.sizes = world, answers, sizes
        self.places = places(sizes)
        self.sent = 0  # bytes

    def scatter(self, x, axis):
        """This rank's part of the sum over an axis."""
        n = self._checked("scatter", x, axis, 1)
        if x.dim() != 1 or len(x) % n:
            told = f"scatter takes one dimension, whose length {n} divides here, was given"
            raise Misfit(f"{told} {list(x.shape)}")
        self.sent += (n - 1) * x.numel() * NUMBER // n
        with _disable_current_modes():
            return self._summed(x, axis).chunk(n)[self.places[self.world.rank][axis]].clone()

    def sum(self, x, axes):
        """The sum over axes."""
        n = self._checked("sum", x, axes, len(AXES))
        self.sent += 2 * (n - 1) * x.numel() * NUMBER // n
        with _disable_current_modes():
            return self._summed(x, axes)

    def _group(self, axes):
        """The ranks that differ in these axes alone."""
        alike = [axis for axis in AXES if axis not in axes]
        mine = self.places[self.world.rank]
        return [r for r, at in enumerate(self.places) if all(at[a] == mine[a] for a in alike)]

    def _checked(self, name, x, axes, most):
        """How many ranks take part."""
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float64:
            given = str(x.dtype).replace("torch.", "") if isinstance(x, torch.Tensor) else repr(x)
            raise Misfit(f"{name} takes a tensor of float64, was given {given}"[:500])
        fits = isinstance(axes, str) and 1 <= len(axes) <= most and set(axes) <= set(AXES)
        if not fits or len(set(axes)) != len(axes):
            what = "one of p, t, r and s" if most == 1 else 'some of p, t, r and s, such as "rt"'
            raise Misfit(f"{name} takes {what}, was given {axes!r}"[:500])
        shape, group = list(x.shape), self._group(axes)
        said = self.answers.meet(what=f"over {''.join(sorted(axes))}", shape=shape)
        for r in group:
            if said[r]["shape"] != shape:
                raise Told(
                    f"{self.answers.diary.now['case']}: rank {self.world.rank} gives {name} {shape}"
                    f" numbers, and rank {r}, with which it sums, {said[r]['shape']}"
                )
        self.numels = [torch.Size(one["shape"]).numel() for one in said]
        return len(group)

    def _summed(self, x, axes):
        flat = torch.zeros(max(1, *self.numels, 1), dtype=torch.float64)
        flat[: x.numel()] = x.detach().reshape(-1)
        theirs = [torch.empty_like(flat) for _ in self.numels]
        dist.all_gather(theirs, flat, group=self.world.group())
        return sum(theirs[r][: x.numel()] for r in self._group(axes)).view(x.shape)


def one_rank(world, answers, told, sizes, shapes, cut, tied, zeros, share, seed):
    """clipped on this rank: what is wrong, and bytes sent."""
    dice = torch.Generator().manual_seed(seed)
    at = places(sizes)
    drawn = [
        [torch.randn(shape, generator=dice, dtype=torch.float64) * (not zeros) for shape in stage]
        for stage in (shapes[place["p"]] for place in at)
    ]
    batches = {(a["r"], a["s"]): 0 for a in at}
    batches = {one: int(torch.randint(1, 9, (1,), generator=dice)) for one in batches}
    means = [[None] * len(cut) for _ in at]
    for rank, i in product(range(len(at)), range(len(cut))):
        free = {"r", "s"} | ({"t"} if not cut[i] else set()) | ({"p"} if i == tied else set())
        alike = [axis for axis in AXES if axis not in free]
        group = [r for r, one in enumerate(at) if all(one[a] == at[rank][a] for a in alike)]
        means[rank][i] = sum(drawn[r][i] for r in group) / sum(batches.values())
    once = [  # where a parameter is counted
        (rank, i)
        for rank, i in product(range(len(at)), range(len(cut)))
        if not any(at[rank][a] for a in ("r", "s"))
        and (cut[i] or not at[rank]["t"])
        and (i != tied or not at[rank]["p"])
    ]
    norm = float(sum((means[rank][i] ** 2).sum() for rank, i in once)) ** 0.5
    limit = share * norm or 1.0
    mine, place = drawn[world.rank], at[world.rank]
    given = [one.clone() for one in mine]
    answers.at(told, world)
    wire = Wire(world, answers, sizes)
    tokens = batches[place["r"], place["s"]]
    got = answers.clipped(given, list(cut), tied, tokens, limit, dict(sizes), wire)
    answers.meet()
    wanted = [
        torch.nn.functional.pad(one.flatten(), (0, -one.numel() % sizes["s"]))
        .mul(min(1.0, limit / norm) if norm else 1.0)
        .chunk(sizes["s"])[place["s"]]
        for one in means[world.rank]
    ]
    wrong = wrong_parts(got, wanted)
    for i, (one, was) in enumerate(zip(given, mine, strict=True)):
        if not wrong and not torch.equal(one, was):
            wrong = f"grads[{i}]: expected left as it was, got changed"
    return {"wrong": wrong, "sent": wire.sent, "norm": norm, "limit": limit}


def wrong_parts(got, right):
    """Where results are not the right ones, in words; nothing if they are."""
    if not isinstance(got, list | tuple) or len(got) != len(right):
        return f"expected {len(right)} shards, got {got!r}"[:500]
    form = lambda x: f"{list(x.shape)} of {x.dtype}".replace("torch.", "")  # noqa: E731
    for i, (x, r) in enumerate(zip(got, right, strict=True)):
        if not isinstance(x, torch.Tensor) or x.shape != r.shape or x.dtype != r.dtype:
            came = form(x) if isinstance(x, torch.Tensor) else repr(x)
            return f"shard {i}: expected {form(r)}, got {came}"[:500]
        for place in (~((x - r).abs() <= 1e-9 * (1e-3 + r.abs()))).nonzero()[:1, 0].tolist():
            both = [one[place].item() for one in (r, x)]
            expected, came = (f"{one:.6g}" for one in both)
            if expected == came:  # they differ in digits that are not shown
                expected, came = (f"{one!r}" for one in both)
            return f"shard {i}[{place}]: expected {expected}, got {came}"
    return ""
