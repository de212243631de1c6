"""Attention over GPUs in several boxes: what each method costs where a box has faster links inside.

Zigzag, causal, forward and backward together, T a multiple of 2 n: all steps of a ring are then
alike, and `seconds` has a closed form. Between boxes the methods differ by how many ports they use.
A ring of messages leaves a box by one of its GPUs alone; a collective lays a ring through each of
them; and an all-to-all in each box, with rings between, has a ring in each port.
"""

from math import gcd
from typing import SupportsIndex

from weft.plan.arguments import amount, chosen, instance, positive, sizes
from weft.plan.collectives import Box
from weft.plan.hardware import Link
from weft.plan.ring.hops import METHODS, WIDE
from weft.plan.ring.layouts import checked
from weft.plan.ring.price import BACKWARD
from weft.plan.zero import ring_bandwidth

WAYS = (*METHODS, "grid")


def pass_seconds(
    T: SupportsIndex,
    n: SupportsIndex,
    box: Box,
    H: SupportsIndex,
    G: SupportsIndex,
    K: SupportsIndex,
    method: str = "ring",
    *,
    share: float = 0.6,
    merged: float = 1.0,
    size: SupportsIndex = 2,
    again: bool = False,
    copied: bool = False,
) -> float | None:
    """A layer's attention, forward and backward, on n GPUs; None where heads do not divide.

    `share` is what kernels reach of the chip's rate, and `merged` what is left of that in a ring,
    whose kernels are smaller, run beside messages and have their parts merged. "grid" is an
    all-to-all among as many GPUs of a box as divide the kv heads, and rings among the rest; None
    where that is one of the two.

    With `again`, what a rank received of others is not kept from forward to backward: a gather
    gathers once more, and an all-to-all exchanges q, k and v. A ring does so anyway. With `copied`,
    an all-to-all over more ranks than kv heads sends copies of these, one for each rank.

    >>> from weft.plan.collectives import BOXES
    >>> how = 131072, 16, BOXES["dgx-h100"], 32, 8, 128
    >>> [f"{1000 * (pass_seconds(*how, way) or 0):.1f}" for way in WAYS]
    ['52.5', '0.0', '56.1', '53.2']
    >>> least = {"again": True, "copied": True}
    >>> [f"{1000 * (pass_seconds(*how, way, **least) or 0):.1f}" for way in WAYS]
    ['52.5', '57.3', '57.5', '53.4']
    """
    T, n = checked(T, n)
    H, G, K, size = sizes(H=H, G=G, K=K, size=size)
    instance(Box, box=box)
    chosen("method", method, WAYS)
    if T % (2 * n):
        raise ValueError(f"T is {T}, must be a multiple of 2n = {2 * n}")
    if n > box.gpus and n % box.gpus:
        raise ValueError(f"n is {n}, must be at most {box.gpus} GPUs of a box, or whole boxes")
    if H % G:
        raise ValueError(f"G is {G}, must divide H = {H}")
    positive(share=amount("share", share), merged=amount("merged", merged))
    rate = box.chip.rate("bf16") * share
    C, alone = T // n, _computed(T, n, H, K, rate)
    slow = box.outside if n > box.gpus else box.inside
    if method == "ring":
        return _ring(C, n, H, G, K, slow, merged * rate, size)
    if method == "gather":
        return alone + _gathered(C, n, G, K, box, size, again)
    if method == "ulysses":
        dealt = n if copied and n % G == 0 and H % n == 0 else G
        return None if dealt % n else alone + _exchanged(C, n, H, dealt, K, box, size, again)
    a = gcd(G, min(n, box.gpus))
    if a in (1, n):
        return None
    ring = _ring(a * C, n // a, H // a, G // a, K, slow, merged * rate, size)
    return _exchanged(C, a, H, G, K, box, size, again) + ring


def computed_seconds(
    T: SupportsIndex,
    n: SupportsIndex,
    box: Box,
    H: SupportsIndex,
    K: SupportsIndex,
    *,
    share: float = 0.6,
) -> float:
    """The same if nothing had to be sent: each GPU's part of the scores, both passes."""
    T, n = checked(T, n)
    H, K = sizes(H=H, K=K)
    instance(Box, box=box)
    positive(share=amount("share", share))
    return _computed(T, n, H, K, box.chip.rate("bf16") * share)


def _computed(T: int, n: int, H: int, K: int, rate: float) -> float:
    return T * (T + 1) / 2 / n * 4 * H * K * (1 + BACKWARD) / rate


def _gathered(C: int, n: int, G: int, K: int, box: Box, size: int, again: bool) -> float:
    """Keys and values to all, and their gradients reduced, by rings through every port."""
    beta = ring_bandwidth(n, box.outside, box.inside, box.gpus)
    latency = (box.outside if n > box.gpus else box.inside).latency
    each = (1 + again) * size + max(WIDE, size)  # bytes for a number of k or v
    return (n - 1) * (2 * C * G * K * each / beta + (2 + again) * latency)


def _exchanged(C: int, n: int, H: int, G: int, K: int, box: Box, size: int, again: bool) -> float:
    """Two all-to-alls forward and two backward; a port and the links inside work at once."""
    if n == 1:
        return 0.0
    local, slow = min(n, box.gpus), box.outside if n > box.gpus else box.inside
    numbers = 4 * (H + G) + again * (H + 2 * G)  # q, k, v and o, both passes; q, k and v again
    each = C * numbers * K * size / n  # bytes to each other rank
    inside = (local - 1) * each / box.inside.bandwidth
    return max(inside, (n - local) * each / box.outside.bandwidth) + (4 + again) * slow.latency


def _ring(C: int, n: int, H: int, G: int, K: int, link: Link, rate: float, size: int) -> float:
    """Both passes of a ring with C tokens on a rank; each phase as long as its longer half."""
    per_pair = 4 * H * K / rate
    own, other = per_pair * (C * C + C) / 2, per_pair * C * C / 2
    if n == 1:
        return own * (1 + BACKWARD)
    keys = 2 * C * G * K * size / link.bandwidth
    gradients = 2 * C * G * K * max(WIDE, size) / link.bandwidth

    def sending(*loads: float) -> float:
        return link.latency + sum(loads)

    forward = max(own, sending(keys)) + (n - 2) * max(other, sending(keys)) + other
    own, other = BACKWARD * own, BACKWARD * other
    if n == 2:
        return forward + sending(keys) + other + max(own, sending(gradients))
    # phases 0; 1; 2 to n - 2 with both; n - 1, which has no keys to pass on; n
    backward = sending(keys) + max(other, sending(keys))
    backward += (n - 3) * max(other, sending(keys, gradients))
    backward += max(other, sending(gradients)) + max(own, sending(gradients))
    return forward + backward
