"""A token's attention over a cache on n ranks: who tells whom its part, and the bytes of it."""

from typing import SupportsIndex

from weft.plan.arguments import sizes, whole
from weft.plan.collectives import Send


def merge_hops(n: SupportsIndex) -> list[list[Send]]:
    """Rounds of messages after which every rank has the parts of all, each merged once.

    In round i a rank and the one whose number differs in bit i tell each other all that they have,
    which is marked with +. Ranks beyond the largest power of two tell theirs to one below it
    first, and are told the whole at the end.

    >>> for phase in merge_hops(3): print(*phase)
    2→0+0
    0→1+0 1→0+0
    0→2:0
    """
    (n,) = sizes(n=n)
    most = 1 << (n.bit_length() - 1)
    late = range(most, n)
    rounds = [
        [Send(rank, rank ^ (1 << i), 0, True) for rank in range(most)]
        for i in range(most.bit_length() - 1)
    ]
    fold = [[Send(rank, rank - most, 0, True) for rank in late]] if late else []
    tell = [[Send(rank - most, rank, 0, False) for rank in late]] if late else []
    return fold + rounds + tell


def sent_in_decode(
    n: SupportsIndex,
    H: SupportsIndex,
    V: SupportsIndex,
    B: SupportsIndex = 1,
    size: SupportsIndex = 4,
    rank: SupportsIndex | None = None,
) -> int:
    """Bytes that a rank sends for one token's attention in one layer, however long the cache is.

    An output of V numbers and a log-sum-exp for each head, in fp32, in each of log2(n) rounds. Of
    `rank`, or of rank 0, which sends the most.

    >>> sent_in_decode(8, H=32, V=128)
    49536
    """
    n, H, V, B, size = sizes(n=n, H=H, V=V, B=B, size=size)
    rank = 0 if rank is None else whole("rank", rank, least=0, most=n - 1)
    most = 1 << (n.bit_length() - 1)
    rounds = 1 if rank >= most else most.bit_length() - 1 + (rank < n - most)
    return B * H * (V + 1) * size * rounds
