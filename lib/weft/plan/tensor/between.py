"""What the layers between two cut matrices compute and move, fused and before they were."""

from typing import NamedTuple

from weft.plan.arguments import chosen, sizes, whole
from weft.plan.roofline import Work


class Moved(NamedTuple):
    """Numbers read or written for each of a row: of the rows' own size, in fp32, and in casts.

    A cast reads a number of one size and writes one of the other; of fp32 there are none.
    """

    own: int
    wide: int = 0
    casts: int = 0

    def bytes(self, size: int) -> int:
        """Bytes, if rows have numbers of so many.

        >>> Moved(3, 7, 2).bytes(2), Moved(3, 7, 2).bytes(4)
        (46, 40)
        """
        (size,) = sizes(size=size)
        return self.own * size + self.wide * 4 + (self.casts * (size + 4) if size < 4 else 0)


FLOPS = {"norm": (5, 10), "swiglu": (5, 12), "cross_entropy": (4, 3)}  # forward, backward
MOVED = {  # layer -> version -> forward, backward
    "norm": {
        "plain": (Moved(3, 7, 2), Moved(3, 23, 2)),
        "apart": (Moved(3 + 2), Moved(3 + 3)),
        "fused": (Moved(4), Moved(4)),
    },
    "swiglu": {
        "plain": (Moved(2 + 3), Moved(3 + 3 + 3)),
        "fused": (Moved(3), Moved(5)),
    },
    "cross_entropy": {
        "plain": (Moved(0, 6, 1), Moved(0, 6, 2)),
        "apart": (Moved(1 + 1), Moved(2)),
        "fused": (Moved(1), Moved(2)),
    },
}


def fused_work(
    layer: str,
    tokens: int,
    width: int,
    size: int = 2,
    version: str = "fused",
    backward: bool = False,
) -> Work:
    """The work of RMSNorm with its residual's sum, of SwiGLU, or of the cross-entropy.

    `width` is D, F, or the words of a rank. "plain" is torch's operations one by one, autograd's
    backward included; "apart" a kernel for the sum and one for the norm, or for maximum and sum;
    "fused" the fewest bytes of a kernel that has no matmul in it. An exponential counts as one
    FLOP, and a version's casts as none. What there is once for a row or a column is left out.

    >>> [fused_work("norm", 1, 1, version=v).bytes for v in MOVED["norm"]]
    [46, 10, 8]
    >>> both = [fused_work("cross_entropy", 8192, 16_384, backward=b) for b in (False, True)]
    >>> sum(one.bytes for one in both) / 1e9, round(sum(both, start=Work(0, 0)).intensity, 2)
    (0.805306368, 1.17)
    """
    versions = MOVED[chosen("layer", layer, MOVED)]
    moved = versions[chosen("version", version, versions)][bool(backward)]
    tokens = whole("tokens", tokens, 0)
    width, size = sizes(width=width, size=size)
    numbers = tokens * width
    return Work(FLOPS[layer][bool(backward)] * numbers, moved.bytes(size) * numbers)
