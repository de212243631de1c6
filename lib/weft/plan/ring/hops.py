"""Who sends which block to whom, phase by phase, and the bytes of it.

A block is what one rank holds of keys and values. It goes from its home to every rank that sees
something of it, in the ring's order: without a window or documents that is all the way round. On
the way back of gradients each of these ranks adds its own, and the last one sends them home; the
home's own gradient never travels. So keys and values are all-gathered by a ring that keeps nothing,
and their gradients reduce-scattered: n - 1 hops each.

    phase i     keys and values go from a block's stop i to stop i + 1, while stop i computes
    backward    the gradients so far, too, from stop i - 1 to stop i, where i is added to them

A block's home is its stop 0. Its own pairs are computed first in forward. In backward they are
last: then the last gradients go home meanwhile, which are twice as large as 16-bit keys.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import SupportsIndex

from weft.plan.arguments import chosen, few, sizes, whole
from weft.plan.collectives import Send
from weft.plan.ring.layouts import checked, held, lengths
from weft.plan.ring.visible import Visibility, pairs

METHODS = ("ring", "ulysses", "gather")
WIDE = 4  # bytes of a gradient that others add to, at least: fp32
Phases = list[list[Send]]


def stops(T: int, n: int, layout: str, see: Visibility) -> list[list[int]]:
    """The ranks that each block visits, from its home on.

    >>> stops(8, 4, "contiguous", Visibility(window=3))
    [[0, 1], [1, 2], [2, 3], [3]]
    """
    T, n = checked(T, n)
    few(n * n, "visits", n=n)
    see.check_length(T)
    parts = held(T, n, layout)
    visits = []
    for home in range(n):
        others = ((home + step) % n for step in range(1, n))
        seen = (r for r in others if see.everywhere or pairs(parts[r], parts[home], see))
        visits.append([home, *seen])
    return visits


def forward_hops(visits: Sequence[Sequence[int]]) -> Phases:
    """The sends of keys and values in each phase.

    >>> for phase in forward_hops([[0, 1, 2], [1, 2, 0], [2, 0, 1]]): print(*phase)
    0→1:0 1→2:1 2→0:2
    1→2:0 2→0:1 0→1:2
    """
    phases: Phases = [[] for _ in range(max(map(len, visits)) - 1)]
    for block, ranks in enumerate(visits):
        for i, (source, target) in enumerate(pairwise(ranks)):
            phases[i].append(Send(source, target, block, reduce=False))
    return phases


def backward_hops(visits: Sequence[Sequence[int]]) -> Phases:
    """The sends of each phase in backward: blocks, and gradients, which are marked with +.

    >>> for phase in backward_hops([[0, 1, 2], [1, 2, 0], [2, 0, 1]]): print(*phase)
    0→1:0 1→2:1 2→0:2
    1→2:0 2→0:1 0→1:2
    1→2+0 2→0+1 0→1+2
    2→0+0 0→1+1 1→2+2
    """
    phases = forward_hops(visits)
    phases += [[] for _ in range(2 if phases else 0)]
    for block, (home, *others) in enumerate(visits):
        for i, (source, target) in enumerate(pairwise([*others, home])):
            phases[i + 2].append(Send(source, target, block, reduce=True))
    return phases


def sent(
    T: SupportsIndex,
    n: SupportsIndex,
    H: SupportsIndex,
    G: SupportsIndex,
    K: SupportsIndex,
    method: str = "ring",
    size: SupportsIndex = 2,
    backward: bool = False,
    *,
    B: SupportsIndex = 1,
    V: SupportsIndex | None = None,
    layout: str = "zigzag",
    rank: SupportsIndex | None = None,
    causal: bool = True,
    window: SupportsIndex | None = None,
    documents: Sequence[SupportsIndex] | None = None,
) -> int:
    """Bytes that one of n ranks sends in one attention, forward or backward alone.

    A rank holds c = T / n tokens. A ring sends c G (K + V) numbers n - 1 times, and in backward
    these once more with their gradients, in fp32 at least. A gather sends the same forward, keeps
    it all, and sends the gradients alone. Ulysses exchanges (n - 1) / n of c (H + G) (K + V)
    numbers, each way.

    Where T does not divide, `rank` says whose bytes: if None, the most that any rank sends.
    Causal or not is the same without a window: a ring goes all the way round. A window, or
    documents, leave out what nobody sees; the other two methods send all the same.

    >>> [sent(131072, 8, 32, 8, 128, m) >> 20 for m in METHODS]
    [448, 280, 448]
    >>> [sent(131072, 8, 32, 8, 128, m, backward=True) >> 20 for m in METHODS]
    [1344, 280, 896]
    """
    T, n = checked(T, n)
    H, G, K, size, B = sizes(H=H, G=G, K=K, size=size, B=B)
    V = K if V is None else whole("V", V)
    if H % G:
        raise ValueError(f"G is {G}, must divide H = {H}")
    ranks = range(n) if rank is None else [whole("rank", rank, least=0, most=n - 1)]
    held_by = lengths(T, n, layout)
    see = Visibility(causal, window, documents)
    see.check_length(T)
    chosen("method", method, METHODS)
    if method == "ulysses":
        check_heads(n, G)
        back = [(T - held_by[r]) * (H * K + G * (K + V)) // n for r in ranks]
        there = [held_by[r] * (n - 1) * H * V // n for r in ranks]
        if not backward:
            back = [(T - held_by[r]) * H * V // n for r in ranks]
            there = [held_by[r] * (n - 1) * (H * K + G * (K + V)) // n for r in ranks]
        return B * size * max(map(sum, zip(there, back, strict=True)))
    if method == "gather" or see.everywhere:
        keys = [T - held_by[(r + 1) % n] for r in range(n)]  # all blocks but the right neighbour's
        gradients = [(T - own) * bool(backward) for own in held_by]  # all but the own
    else:
        keys, gradients = _tokens(stops(T, n, layout, see), held_by, backward)
    if method == "gather" and backward:
        keys = [0] * n
    each = (size * keys[r] + max(WIDE, size) * gradients[r] for r in ranks)
    return B * G * (K + V) * max(each)


def check_heads(n: int, G: int) -> None:
    """Refuse to deal kv heads, and with them the query heads, to ranks that they do not divide."""
    if G % n:
        raise ValueError(f"G is {G} kv heads, must be a multiple of n = {n} ranks for ulysses")


def _tokens(
    visits: Sequence[Sequence[int]], held_by: Sequence[int], backward: bool
) -> tuple[list[int], list[int]]:
    """Of each rank the tokens whose keys and values it sends, and whose gradients."""
    keys, gradients = [0] * len(visits), [0] * len(visits)
    for phase in backward_hops(visits) if backward else forward_hops(visits):
        for hop in phase:
            (gradients if hop.reduce else keys)[hop.source] += held_by[hop.chunk]
    return keys, gradients


def sent_in_grid(
    T: SupportsIndex,
    inside: SupportsIndex,
    between: SupportsIndex,
    H: SupportsIndex,
    G: SupportsIndex,
    K: SupportsIndex,
    size: SupportsIndex = 2,
    backward: bool = False,
) -> tuple[int, int]:
    """Bytes that a rank sends within its node and out of it: all-to-all inside, ring between.

    The ranks of a node exchange a `between`-th of the tokens for heads; then each rank's ring
    has `between` ranks, one in each node, and these heads.

    >>> in_grid = sent_in_grid(131072, inside=8, between=2, H=32, G=8, K=128)
    >>> [round(nbytes / 1e6, 1) for nbytes in in_grid]
    [146.8, 33.6]
    """
    T, inside, between, H, G = sizes(T=T, inside=inside, between=between, H=H, G=G)
    if G % inside:
        raise ValueError(f"inside is {inside}, must divide the G = {G} kv heads")
    if inside * between > T:
        raise ValueError(f"between is {between}, must be at most T / inside = {T / inside:g}")
    part = -(-T // between)
    within = sent(part, inside, H, G, K, "ulysses", size, backward)
    return within, sent(T, between, H // inside, G // inside, K, "ring", size, backward)
