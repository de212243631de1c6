"""Attention over a sequence whose tokens lie over the ranks of a group."""

from collections.abc import Sequence
from functools import cache
from typing import Any, SupportsIndex

from torch import Tensor

from weft.plan.arguments import chosen, whole
from weft.plan.attention import Sizes, check
from weft.plan.ring import LAYOUTS, METHODS, held, lengths
from weft.plan.ring.hops import check_heads, stops
from weft.plan.ring.visible import Rectangle, Visibility, rectangles
from weft.run.collectives import Group, agreed, group_rank_size
from weft.run.ring.blocks import BlockKernel, Kernel, check_kernel
from weft.run.ring.exchange import GatheredAttention, ulysses
from weft.run.ring.rotate import RingAttention, Rotation


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    world: Group,
    causal: bool = False,
    scale: float | None = None,
    layout: str = "zigzag",
    method: str = "ring",
    kernel: Kernel | None = None,
    *,
    window: SupportsIndex | None = None,
    documents: Sequence[SupportsIndex] | None = None,
    tokens: SupportsIndex | None = None,
) -> Tensor:
    """This rank's rows of attention over the tokens of all ranks, as if they were in one place.

    q [B, T/n, H, K], k [B, T/n, G, K] and v [B, T/n, G, V] are the tokens that `layout` gives this
    rank (`shard` takes them from the whole), and so are the rows of o [B, T/n, H, V]. T need not
    divide. `method` "ring" rotates keys and values, "ulysses" deals heads, "gather" gathers keys
    and values; weft.plan.ring.sent says what each sends. `window` leaves each causal query the
    last so many keys, `documents` (starts, and T) those of its own document; then blocks go only
    where somebody sees them.

    `kernel` is any function with the face of weft.ref.attention.attention; None is torch's flash
    attention on a processor, else the reference. Differentiable, once: every rank runs backward.
    ValueError, the same on all ranks, names an argument that does not fit or differs. For that
    they first tell each other what they were given; who knows that it agrees gives `tokens`, which
    is T, and nobody does.
    """
    group, rank, n = group_rank_size(world)
    see: Visibility | None = None
    sizes: Sizes | None = None

    def mine() -> tuple[int, dict[str, Any]]:
        nonlocal see, sizes
        see, sizes = Visibility(bool(causal), window, documents), _checked(q, k, v, scale, kernel)
        chosen("layout", layout, LAYOUTS)
        if chosen("method", method, METHODS) == "ulysses":
            check_heads(n, sizes.G)
        asked = {"causal": see.causal, "window": see.window, "documents": see.documents}
        asked |= {"scale": scale, "layout": layout, "method": method, "q's dtype": str(q.dtype)}
        asked |= {"the batch": sizes.B, "H": sizes.H, "G": sizes.G, "K": sizes.K, "V": sizes.V}
        trained = any(x.requires_grad for x in (q, k, v))
        return sizes.T, asked | {"whether q, k or v requires its gradient": trained}

    if tokens is None:
        counts = agreed(group, mine)
    else:
        own, _ = mine()
        counts = lengths(whole("tokens", tokens, least=n), n, layout)
        if own != counts[rank]:
            told = f"tokens is {tokens}, of which rank {rank} has {counts[rank]} with {layout!r}"
            raise ValueError(f"{told}, must be those of q, which has {own}")
    check_shares("q", counts, layout)
    T = sum(counts)
    see.check_length(T)
    how = BlockKernel(kernel, scale)
    visits, visible = _pattern(T, n, layout, see, rank)
    ring = Rotation(group, rank, sizes, counts, visits, visible, how)
    if method == "ring":
        return RingAttention.apply(q, k, v, ring)
    if method == "gather":
        return GatheredAttention.apply(q, k, v, ring)
    some = sizes._replace(T=T, S=T, H=sizes.H // n, G=sizes.G // n)
    alone = Rotation(None, 0, some, [T], *_pattern(T, 1, "contiguous", see, 0), how)
    return ulysses(q, k, v, ring, alone, held(T, n, layout))


def _checked(q: Tensor, k: Tensor, v: Tensor, scale: Any, kernel: Any) -> Sizes:
    check_kernel(kernel)
    sizes = check(q, k, v, scale=scale)
    if sizes.T != sizes.S:
        raise ValueError(f"k has {sizes.S} tokens, must have as many as q, {sizes.T}")
    return sizes


def check_shares(name: str, counts: Sequence[int], layout: str) -> None:
    """Refuse numbers of tokens on the ranks that are not those of the layout."""
    T, n = sum(counts), len(counts)
    wanted = lengths(T, n, layout) if n <= T else None
    if list(counts) != wanted:
        told = f"must be {wanted} with layout {layout!r}" if wanted else "must be at least 1 each"
        raise ValueError(f"{name} has T = {T} tokens, {list(counts)} of them on each rank: {told}")


@cache
def _pattern(
    T: int, n: int, layout: str, see: Visibility, rank: int
) -> tuple[list[list[int]], list[list[Rectangle]]]:
    """Where blocks go, and what this rank sees of each: the same for every layer of every step."""
    parts = held(T, n, layout)
    return stops(T, n, layout, see), [rectangles(parts[rank], keys, see) for keys in parts]
