"""What a rank keeps alive while it computes one attention, besides its own q, k and v."""

from typing import SupportsIndex

from weft.plan.arguments import chosen, sizes, whole
from weft.plan.ring.hops import METHODS, WIDE, check_heads
from weft.plan.ring.layouts import checked, lengths


def alive(
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
) -> int:
    """The most bytes of tensors at once, with a kernel that keeps no scores: at most so many.

    A ring has two blocks of keys and values, whatever n is, and in backward three of gradients,
    in fp32 at least: one that goes, one that comes, one that is added to. A gather has all n.
    Ulysses has q, k and v three times, four in backward: as they go, come and are put in order.
    Besides these there are the rows of the output, one kernel's results, and what merges them.

    >>> kept = [alive(2**20, 16, 32, 8, 128, method) / 2**30 for method in ("ring", "gather")]
    >>> [round(gib, 1) for gib in kept]
    [3.0, 6.5]
    """
    T, n = checked(T, n)
    H, G, K, size, B = sizes(H=H, G=G, K=K, size=size, B=B)
    V = K if V is None else whole("V", V)
    c, wide = max(lengths(T, n, "contiguous")), max(WIDE, size)
    if H % G:
        raise ValueError(f"G is {G}, must divide H = {H}")
    block, queries, rows, lse = (B * c * x for x in (G * (K + V), H * K, H * V, H * wide))
    others = {"ring": 2 if n > 1 else 0, "gather": 0 if backward else n, "ulysses": 0}
    others = others[chosen("method", method, METHODS)]
    if backward:
        sums = {"ring": 3 if n > 1 else 1, "gather": n, "ulysses": 1}[method]
        least = others * block * size + sums * block * wide
        computing = least + queries * (wide + size) + block * size + rows * wide + 2 * lse
    else:
        computing = others * block * size + rows * (2 * wide + size * (size < wide)) + 4 * lse
    if method != "ulysses":
        return computing
    check_heads(n, G)
    taken = queries + block
    if backward:
        return max(taken * size + computing, 4 * taken * size + rows * size)
    return max(taken * size + computing, 3 * taken * size + rows * size + lse)
