"""How long an attention over n ranks takes: what hides behind computing, and what does not.

A ring sends a block while it computes with another, n - 1 times, and pays the link's latency each
time. An all-to-all sends less where there are many ranks, and pays it once each way, but nothing
can be computed before it is over; nor before a gather is.
"""

from fractions import Fraction
from math import ceil, sqrt
from typing import SupportsIndex

from weft.plan.arguments import chosen, instance, positive, sizes, whole
from weft.plan.hardware import Chip, Link
from weft.plan.ring.balance import work
from weft.plan.ring.hops import METHODS, WIDE, check_heads, sent
from weft.plan.ring.layouts import lengths

BACKWARD = 2.5  # times the FLOPs of forward: five products of a block instead of two


def least_block(
    chip: Chip,
    link: Link,
    *,
    H: SupportsIndex = 1,
    G: SupportsIndex = 1,
    causal: bool = False,
    size: SupportsIndex = 2,
    dtype: str | None = None,
    share: float = 1.0,
    K: SupportsIndex | None = None,
) -> int:
    """The least tokens on a rank with which sending a block takes no longer than computing one.

    By the paper F / B: a step computes 4 c^2 H K FLOPs and sends 2 c G K numbers of `size` bytes.
    Fewer kv heads than heads make it H / G times less; a balanced causal ring computes half of a
    step's pairs, which makes it twice as much. `share` is what a kernel reaches of the chip's
    rate in `dtype` (bf16 if None, fp16 on a chip that has no other). With K the link's latency
    counts, too. Liu et al. 2023, section 3 and table 2.

    >>> from weft.plan.hardware import CHIPS, LINKS
    >>> least_block(CHIPS["a100-80"], LINKS["nvlink3"])
    1040
    >>> least_block(CHIPS["h100"], LINKS["ib-ndr"], H=32, G=8, causal=True, share=0.65)
    6432
    """
    instance(Chip, chip=chip)
    instance(Link, link=link)
    H, G, size = sizes(H=H, G=G, size=size)
    rate = Fraction(_rate(chip, dtype, share))
    if H % G:
        raise ValueError(f"G is {G}, must divide H = {H}")
    hidden = rate * 2 * G * size * (2 if causal else 1) / (4 * H * Fraction(link.bandwidth))
    if K is None or not link.latency:
        return ceil(hidden)
    late = float(rate) * link.latency * (2 if causal else 1) / (4 * H * whole("K", K))
    return ceil((float(hidden) + sqrt(float(hidden) ** 2 + 4 * late)) / 2)


def seconds(
    T: SupportsIndex,
    n: SupportsIndex,
    chip: Chip,
    link: Link,
    H: SupportsIndex,
    G: SupportsIndex,
    K: SupportsIndex,
    method: str = "ring",
    *,
    layout: str = "zigzag",
    causal: bool = True,
    backward: bool = False,
    size: SupportsIndex = 2,
    dtype: str | None = None,
    share: float = 0.6,
) -> float:
    """One attention's forward, or backward alone, of one sequence of T tokens on n ranks.

    The chip computes the visible pairs alone, at `share` of its rate. Every message takes the
    link's latency, and its bytes over the bandwidth; a rank sends and receives at the same time.
    A ring's step ends when its slowest rank has computed, and its slowest message has come.

    >>> from weft.plan.hardware import CHIPS, LINKS
    >>> how = 131072, 8, CHIPS["h100"], LINKS["nvlink4"], 32, 8, 128
    >>> [f"{1000 * seconds(*how, method):.1f} ms" for method in METHODS]
    ['29.6 ms', '30.3 ms', '30.7 ms']
    """
    instance(Chip, chip=chip)
    instance(Link, link=link)
    chosen("method", method, METHODS)
    rows = work(T, n, layout, causal)
    H, G, K, size = sizes(H=H, G=G, K=K, size=size)
    per_pair = 4 * H * K * (BACKWARD if backward else 1) / _rate(chip, dtype, share)
    moved = sent(T, n, H, G, K, method, size, backward, layout=layout) / link.bandwidth
    n = len(rows)
    if method == "ulysses":  # all heads' pairs, dealt evenly; to all others at once, and back
        return sum(map(sum, rows)) / n * per_pair + (2 * link.latency if n > 1 else 0) + moved
    if method == "gather":
        return max(map(sum, rows)) * per_pair + (n - 1) * link.latency + moved
    computed = [per_pair * max(step) for step in zip(*rows, strict=True)]
    if n == 1:
        return sum(computed)
    if backward:  # nothing to compute before the first block is there; the own one comes last
        computed = [0.0, *computed[1:], computed[0]]
    token = max(lengths(T, n, layout)) * 2 * G * K / link.bandwidth
    sending = []
    for i in range(n + 1 if backward else n - 1):  # as backward_hops and forward_hops have it
        gradients = max(WIDE, size) if i >= 2 and backward else 0
        seconds_sent = token * ((size if i < n - 1 else 0) + gradients)
        sending.append(link.latency + seconds_sent if seconds_sent else 0.0)
    sending += [0.0] * (len(computed) - len(sending))
    return sum(map(max, computed, sending))


def best(
    T: SupportsIndex,
    n: SupportsIndex,
    chip: Chip,
    link: Link,
    H: SupportsIndex,
    G: SupportsIndex,
    K: SupportsIndex,
    **how: object,
) -> tuple[str, dict[str, float]]:
    """The fastest method for a sequence, and the seconds of each that can be; `how` as `seconds`.

    Of two that are as fast it is the ring, which keeps least.

    >>> from weft.plan.hardware import CHIPS, LINKS
    >>> h100, model = CHIPS["h100"], (32, 8, 128)
    >>> [best(T, 8, h100, LINKS["ib-ndr"], *model)[0] for T in (2**13, 2**15, 2**17)]
    ['ulysses', 'ring', 'ring']
    """
    found = {}
    for method in METHODS:
        if method == "ulysses":
            try:
                check_heads(*sizes(n=n, G=G))
            except ValueError:
                continue
        found[method] = seconds(T, n, chip, link, H, G, K, method, **how)
    return min(found, key=found.get), found


def _rate(chip: Chip, dtype: str | None, share: float) -> float:
    """FLOP/s that a kernel reaches."""
    (share,) = positive(share=share)
    if dtype is None:
        dtype = "bf16" if "bf16" in chip.rates else "fp16"
    return chip.rate(dtype) * share
