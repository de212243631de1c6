"""Which block of a kernel does which piece of attention, and in what order the pieces begin.

A piece is one head's tile of queries, or of keys, numbered head * tiles + tile. With a causal mask
some take many times as long as others. A multiprocessor that is done while others still work
stands idle, so the longest pieces begin first, and each goes to the block that is free first.
Graham 1969: the last block then ends at most one piece after the mean.
"""

from collections.abc import Sequence
from heapq import heapreplace

from weft.plan.arguments import whole

Hands = list[list[int]]  # the pieces of each block, in their order
START = 2  # what a piece costs beside its tiles, in tiles: a guess, until it is measured


def of_queries(
    T: int, S: int, heads: int, together: int, rows: int, keys: int, causal: bool, blocks: int
) -> Hands:
    """The pieces of each block, where tiles of `rows` queries stay and tiles of keys stream past.

    Heads come in groups of `together`, whose keys and values fit into the L2 cache. Inside
    a group the last tile of queries comes first, which sees most keys.
    """
    costs = query_costs(T, S, rows, keys, causal)
    return deal(order(heads, together, reversed(range(len(costs)))), costs, blocks)


def of_keys(
    T: int, S: int, heads: int, together: int, rows: int, keys: int, causal: bool, blocks: int
) -> Hands:
    """Likewise where tiles of keys stay and queries stream past: the first keys are seen most."""
    seeing = -(-T // rows)
    costs = [
        START + seeing - (min(max(first + T - S, 0) // rows, seeing) if causal else 0)
        for first in range(0, S, keys)
    ]
    return deal(order(heads, together, range(len(costs))), costs, blocks)


def query_costs(T: int, S: int, rows: int, keys: int, causal: bool) -> list[int]:
    """What each tile of queries costs: START, and the tiles of keys that one of them sees.

    >>> query_costs(T=512, S=512, rows=128, keys=128, causal=True)
    [3, 4, 5, 6]
    """
    ends = (min(S, max(first + rows + S - T, 1)) if causal else S for first in range(0, T, rows))
    return [START + -(-end // keys) for end in ends]


def order(heads: int, together: int, tiles: Sequence[int]) -> list[int]:
    """Pieces as they begin: group by group, and in a group tile by tile, of all heads.

    >>> order(heads=3, together=2, tiles=(1, 0))
    [1, 3, 0, 2, 5, 4]
    """
    tiles = list(tiles)
    groups = (range(first, min(first + together, heads)) for first in range(0, heads, together))
    return [head * len(tiles) + tile for group in groups for tile in tiles for head in group]


def deal(pieces: Sequence[int], costs: Sequence[float], blocks: int) -> Hands:
    """Each piece, in this order, to the block that is free first.

    costs[i] is what tile i of any head costs.

    >>> deal([3, 2, 1, 0], [1, 2, 3, 4], blocks=2)
    [[3, 0], [2, 1]]
    """
    blocks = whole("blocks", blocks)
    if len(set(costs)) == 1:  # then whoever is free first is whose turn it is
        return in_turn(pieces, blocks)
    hands: Hands = [[] for _ in range(blocks)]
    free = [(0.0, block) for block in range(blocks)]
    for piece in pieces:
        at, block = free[0]
        hands[block].append(piece)
        heapreplace(free, (at + costs[piece % len(costs)], block))
    return hands


def in_turn(pieces: Sequence[int], blocks: int) -> Hands:
    """Piece i to block i modulo their number: what one does without a thought.

    >>> in_turn([3, 2, 1, 0], blocks=2)
    [[3, 1], [2, 0]]
    """
    return [list(pieces[block::blocks]) for block in range(blocks)]


def loads(hands: Sequence[Sequence[int]], costs: Sequence[float]) -> list[float]:
    """What each block has to do in all."""
    return [sum(costs[piece % len(costs)] for piece in hand) for hand in hands]


def stretch(hands: Sequence[Sequence[int]], costs: Sequence[float]) -> float:
    """How much longer the last block works than all would if they shared evenly; 1 is ideal.

    >>> stretch([[3, 1], [2, 0]], [1, 2, 3, 4]), stretch([[3, 0], [2, 1]], [1, 2, 3, 4])
    (1.2, 1.0)
    """
    worked = loads(hands, costs)
    return max(worked) * len(worked) / sum(worked)
