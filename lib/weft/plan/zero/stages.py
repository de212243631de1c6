"""What each stage of ZeRO sends in a training step, and which rank keeps which part.

Parameters go into buckets in the order in which backward finishes their gradients, from the last
to the first; a bucket is one flat buffer. Each rank keeps one shard of every bucket, and
there updates, alone, the optimizer's state. weft.run.zero divides parameters by `bucketed`, `shard`
and `cut` and sends by RINGS; its classes make the calls that `calls` lists, and a test holds the
two together, call by call and to the byte. What a rank holds meanwhile is in kept, how it goes in
time in overlap.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from weft.plan.arguments import few, instance, plain, row, sizes, total, whole
from weft.plan.collectives import chunks, ring_all_gather, ring_all_reduce, ring_reduce_scatter
from weft.plan.collectives import sent as ring_sent
from weft.plan.memory import STAGES

BUCKET = 2**22  # elements that are sent together where nobody says how many; 16 MiB of fp32
RINGS = {
    "all_reduce": ring_all_reduce,
    "reduce_scatter": ring_reduce_scatter,
    "all_gather": ring_all_gather,
}


class Call(NamedTuple):
    """A collective on every bucket: the operation, of what, and when."""

    op: str
    what: str
    when: str


def calls(stage: int, microbatches: int = 1) -> tuple[Call, ...]:
    """The collectives of one step, each of them once for every bucket.

    An all-reduce is a reduce-scatter and an all-gather, and stage 1 puts the update
    between the two: it sends what stage 0 sends. Stage 2 keeps no whole gradient,
    so it reduces after each microbatch and not once a step. Stage 3 keeps no whole
    weights, so each microbatch gathers them twice, and the step ends without.

    Rajbhandari et al. 2020, section 7.

    >>> for call in calls(stage=3): print(*call)
    all_gather weights forward
    all_gather weights backward
    reduce_scatter gradients backward
    """
    stage = checked_stage(stage)
    microbatches = whole("microbatches", microbatches)
    reduce = Call("reduce_scatter", "gradients", "backward")
    update = Call("all_gather", "weights", "step")
    if stage == 0:
        return (Call("all_reduce", "gradients", "backward"),)
    if stage == 1:
        return reduce, update
    if stage == 2:
        return (*(reduce,) * microbatches, update)
    forward, again = (
        Call("all_gather", "weights", "forward"),
        Call("all_gather", "weights", "backward"),
    )
    return (forward, again, reduce) * microbatches


def sent(
    stage: int,
    buckets: Sequence[int],
    n: int,
    rank: int,
    weight: int = 2,
    gradient: int = 2,
    microbatches: int = 1,
) -> dict[str, int]:
    """Bytes that one of `n` ranks sends in a step, by operation, to the byte.

    `buckets` has the elements of each bucket, `weight` and `gradient` are the bytes of
    one element. The operations are rings, and shards that do not divide are as
    `shard` cuts them, so ranks can differ by an element for each bucket.

    >>> sent(1, buckets=[10, 11], n=4, rank=0)
    {'reduce_scatter': 30, 'all_gather': 30}
    """
    n, rank = _seat(n, rank)
    few(n * n, "messages", n=n)
    size = dict(zip(("weight", "gradient"), sizes(weight=weight, gradient=gradient), strict=True))
    buckets = checked_buckets(buckets)
    total: Counter[str] = Counter()
    for call in calls(stage, microbatches):
        steps = RINGS[call.op](n)
        elements = sum(ring_sent(steps, chunks(numel, n))[rank] for numel in buckets)
        total[call.op] += elements * size[call.what.removesuffix("s")]
    return dict(total)


def shard(numel: int, n: int, rank: int) -> range:
    """The elements of a bucket that a rank keeps; the first ranks have one more.

    >>> [shard(11, 4, rank) for rank in range(4)]
    [range(0, 3), range(3, 6), range(6, 9), range(9, 11)]
    """
    n, rank = _seat(n, rank)
    cut = chunks(whole("numel", numel, least=0), n)
    start = sum(cut[:rank])
    return range(start, start + cut[rank])


def bucketed(numels: Sequence[int], limit: int) -> tuple[tuple[int, ...], ...]:
    """Which parameters go into a bucket together: their indices, in the order of backward.

    A bucket is closed when the next parameter would bring it above `limit`
    elements; a parameter that is larger has a bucket to itself. Li et al. 2020,
    section 3.2.3.

    >>> bucketed([50, 10, 20, 40], limit=60)
    ((3, 2), (1, 0))
    """
    numels, (limit,) = checked_buckets(numels, "numels"), sizes(limit=limit)
    buckets: list[list[int]] = []
    held = 0
    for i in reversed(range(len(numels))):
        if not buckets or held + numels[i] > limit:
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += numels[i]
    return tuple(map(tuple, buckets))


def cut(numels: Sequence[int], kept: range) -> tuple[tuple[int, range], ...]:
    """Which elements of each parameter of a bucket a range of its flat buffer has.

    The index of the parameter, and the elements by their place in the flattened
    parameter; parameters of which the range has none are left out.

    >>> cut([3, 4, 5], range(2, 9))
    ((0, range(2, 3)), (1, range(0, 4)), (2, range(0, 2)))
    """
    instance(range, kept=kept)
    found, start = [], 0
    for i, numel in enumerate(row("numels", numels)):
        numel = whole("numels", numel, least=0)
        elements = range(max(kept.start - start, 0), min(kept.stop - start, numel))
        if elements:
            found.append((i, elements))
        start += numel
    return tuple(found)


# --- arguments ------------------------------------------------------------------------------------


def checked_stage(stage: int, name: str = "stage") -> int:
    """A stage of ZeRO, or ValueError."""
    stage = plain(stage)
    if type(stage) is not int or stage not in STAGES:
        raise ValueError(f"{name} is {stage!r}, must be 0, 1, 2 or 3")
    return stage


def _seat(n: int, rank: int) -> tuple[int, int]:
    n, rank = whole("n", n), plain(rank)
    few(n, "ranks", n=n)
    if type(rank) is not int or rank not in range(n):
        raise ValueError(f"rank is {rank!r}, must be a whole number from 0 to {n - 1}")
    return n, rank


def checked_buckets(numels: Sequence[int], name: str = "buckets") -> tuple[int, ...]:
    """The elements of each bucket, one bucket at least, or ValueError."""
    return tuple(total(f"elements in {name}", numel) for numel in row(name, numels))
