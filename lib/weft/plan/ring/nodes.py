"""Attention over GPUs in several boxes: what each method costs where a box has faster links inside.

Zigzag, causal, forward and backward together, T a multiple of 2 n: all steps of a ring are then
alike, and `seconds` has a closed form. Between boxes the methods differ by how many ports they use.
A ring of messages leaves a box by one of its GPUs alone; a collective lays a ring through each of
them; and an all-to-all in each box, with rings between, has a ring in each port. So has a double
ring: blocks go round a box, and meanwhile each GPU passes one on to its like in the next box.
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

WAYS = (*METHODS, "grid", "double")


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
    where that is one of the two. "double" are rings within boxes and rings between them, for any
    heads; None in a single box.

    With `again`, what a rank received of others is not kept from forward to backward: a gather
    gathers once more, and an all-to-all exchanges q, k and v. A ring does so anyway. With `copied`,
    an all-to-all over more ranks than kv heads sends copies of these, one for each rank.

    >>> from weft.plan.collectives import BOXES
    >>> how = 131072, 16, BOXES["dgx-h100"], 32, 8, 128
    >>> [f"{1000 * (pass_seconds(*how, way) or 0):.1f}" for way in WAYS]
    ['52.5', '0.0', '56.1', '53.2', '52.6']
    >>> least = {"again": True, "copied": True}
    >>> [f"{1000 * (pass_seconds(*how, way, **least) or 0):.1f}" for way in WAYS]
    ['52.5', '57.3', '57.5', '53.4', '52.6']
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
        return sum(_ring(C, n, H, G, K, slow, merged * rate, size))
    if method == "double":
        return _double(C, n, H, G, K, box, merged * rate, size) if n > box.gpus else None
    if method == "gather":
        return alone + _gathered(C, n, G, K, box, size, again)
    if method == "ulysses":
        dealt = n if copied and n % G == 0 and H % n == 0 else G
        return None if dealt % n else alone + _exchanged(C, n, H, dealt, K, box, size, again)
    a = gcd(G, min(n, box.gpus))
    if a in (1, n):
        return None
    rings = _ring(a * C, n // a, H // a, G // a, K, slow, merged * rate, size)
    return _exchanged(C, a, H, G, K, box, size, again) + sum(rings)


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


def _ring(
    C: int, n: int, H: int, G: int, K: int, link: Link, rate: float, size: int
) -> tuple[float, float]:
    """The passes of a ring with C tokens on a rank; each phase as long as its longer half."""
    other = _block(C, H, K, rate)
    own = other * (C + 1) / C
    if n == 1:
        return own, BACKWARD * own
    keys, gradients = _sent(C, G, K, size)

    def sending(*loads: float) -> float:
        return link.latency + sum(loads) / link.bandwidth

    forward = max(own, sending(keys)) + (n - 2) * max(other, sending(keys)) + other
    own, other = BACKWARD * own, BACKWARD * other
    if n == 2:
        return forward, sending(keys) + other + max(own, sending(gradients))
    # phases 0; 1; 2 to n - 2 with both; n - 1, which has no keys to pass on; n
    backward = sending(keys) + max(other, sending(keys))
    backward += (n - 3) * max(other, sending(keys, gradients))
    backward += max(other, sending(gradients)) + max(own, sending(gradients))
    return forward, backward


def _double(C: int, n: int, H: int, G: int, K: int, box: Box, rate: float, size: int) -> float:
    """Both passes of a double ring: rounds within a box, each with the blocks of another box.

    During a round each GPU passes the block that it had first to its like in the next box. The
    own box's round is the first of forward and the last of backward. A round's gradients go once
    round the box; they are whole after the next round's first step, then added to what came from
    the box before, and sent on. The last of them come home behind the own box's round.
    """
    rounds, steps = n // box.gpus, box.gpus
    own_forward, own_backward = _ring(C, steps, H, G, K, box.inside, rate, size)
    keys, gradients = _sent(C, G, K, size)

    def step(times: float, *loads: float) -> float:
        sending = box.inside.latency + sum(loads) / box.inside.bandwidth if loads else 0.0
        return max(times * _block(C, H, K, rate), sending)

    def between(*loads: float) -> float:
        return box.outside.latency + sum(loads) / box.outside.bandwidth

    once = (steps - 1) * step(1, keys) + step(1)
    forward = max(own_forward, between(keys)) + (rounds - 2) * max(once, between(keys)) + once
    each = step(BACKWARD, keys, gradients)

    def back(computed: float, *loads: float) -> float:
        return max(computed, each + between(*loads))

    backward = between(keys)
    if rounds == 2:
        backward += steps * each
    else:
        backward += back(steps * each, keys) + back(steps * each, gradients)
        backward += (rounds - 3) * back(steps * each, keys, gradients)
    return forward + backward + back(own_backward, gradients)


def _block(C: int, H: int, K: int, rate: float) -> float:
    """Seconds of a forward step with the keys of another rank."""
    return 4 * H * K * C * C / 2 / rate


def _sent(C: int, G: int, K: int, size: int) -> tuple[int, int]:
    """Bytes of a block's keys and values, and of their gradients."""
    return 2 * C * G * K * size, 2 * C * G * K * max(WIDE, size)
