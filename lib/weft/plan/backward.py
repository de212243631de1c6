"""Attention's backward pass: what a tile needs room for, and in which order dQ is summed.

One program has a tile of keys. It owns dK and dV of these keys, walks over the tiles of queries
that see them, and adds its part to dQ of each. To whom dQ's next addition belongs, if its bits are
to be the same in every run, decides how long the programs wait for each other.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from weft.plan.arguments import amount, chosen, few, sizes, whole

ROWS = ("up", "down", "shifted")


# --- what a tile takes ----------------------------------------------------------------------------


class BackwardTile(NamedTuple):
    """Queries by keys of one step of FlashAttention-3's backward, and what it keeps of each.

    `stages` tiles of Q and dO, and `ds_stages` of dS, lie in shared memory beside K, V and, in
    fp32, a tile of dQ on its way out.
    """

    K: int
    queries: int
    keys: int
    stages: int = 2
    ds_stages: int = 2
    warpgroups: int = 2


# FlashAttention-3's own, by width, without and with a causal mask: its file
# hopper/flash_bwd_launch_template.h of 2026. At 256 dQ leaves from registers, by atomics.
BACKWARD_TILES: Mapping[tuple[int, bool], BackwardTile] = {
    (64, False): BackwardTile(64, 128, 128),
    (64, True): BackwardTile(64, 128, 128),
    (128, False): BackwardTile(128, 80, 128),
    (128, True): BackwardTile(128, 64, 128),
}


def checked(tile: BackwardTile) -> BackwardTile:
    """The tile, if its sizes are whole and positive."""
    if not isinstance(tile, BackwardTile):
        raise ValueError(f"tile is {tile!r}, must be a BackwardTile")
    sizes(**tile._asdict())
    return tile


def tile_registers(tile: BackwardTile) -> dict[str, int]:
    """Registers of a thread for each sum of a step, in fp32 over all consumer threads.

    >>> tile_registers(BackwardTile(128, 64, 128))
    {'dK, dV': 128, 'S, dP': 64, 'dQ': 32}
    """
    tile = checked(tile)
    threads = 128 * tile.warpgroups
    return {
        "dK, dV": 2 * tile.keys * tile.K // threads,
        "S, dP": 2 * tile.queries * tile.keys // threads,
        "dQ": tile.queries * tile.K // threads,
    }


def tile_shared(tile: BackwardTile, size: int = 2) -> dict[str, int]:
    """Bytes of shared memory for what a step reads and hands on, `size` bytes an element.

    >>> sum(tile_shared(BackwardTile(128, 64, 128)).values()) // 1024
    192
    """
    tile = checked(tile)
    (size,) = sizes(size=size)
    step = tile.queries * tile.K
    return {
        "K, V": 2 * tile.keys * tile.K * size,
        "Q, dO": 2 * tile.stages * step * size,
        "dS": tile.ds_stages * tile.queries * tile.keys * size,
        "dQ": step * 4,
    }


# --- who adds to which dQ, and when ---------------------------------------------------------------


class Addition(NamedTuple):
    """One step of one program: its multiprocessor, head, tiles of keys and queries, and clocks.

    It computes from `start` to `ready`, and its part is in memory at `added`.
    """

    sm: int
    head: int
    key: int
    query: int
    start: float
    ready: float
    added: float


def query_walk(key: int, queries: int, keys: int, causal: bool, rows: str) -> list[int]:
    """The tiles of queries that see a tile of keys, in the order of its program.

    `up` begins with the first of them, `down` with the last; `shifted`, without a mask, begins a
    share further on for each tile of keys, so that no two programs are at one dQ.

    >>> query_walk(1, 4, 4, True, "up"), query_walk(1, 4, 4, False, "shifted")
    ([1, 2, 3], [1, 2, 3, 0])
    """
    queries, keys = sizes(queries=queries, keys=keys)
    key = whole("key", key, least=0, most=keys - 1)
    chosen("rows", rows, ROWS)
    first = key * queries // keys
    if rows == "shifted":
        if causal:
            raise ValueError("rows is 'shifted', must be 'up' or 'down' with a causal mask")
        return [*range(first, queries), *range(first)]
    walk = range(first if causal else 0, queries)
    return list(walk if rows == "up" else reversed(walk))


def additions(
    queries: int,
    keys: int,
    heads: int = 1,
    sms: int = 132,
    causal: bool = True,
    rows: str = "up",
    ordered: bool = True,
    handoff: float = 0.0,
) -> list[Addition]:
    """Every step of a backward pass on `sms` multiprocessors, one clock a step.

    Programs start in the order of heads and keys as multiprocessors become free. With `ordered`,
    the parts of a dQ are added in one order: that of the keys, or, `shifted`, that in which the
    programs would come there by themselves. An addition takes `handoff` clocks, until which the
    next one waits, and a program computes at most one step ahead of its own.

    >>> [one.start for one in additions(2, 2, sms=2, rows="up")]
    [0, 1, 0]
    """
    queries, keys, heads, sms = sizes(queries=queries, keys=keys, heads=heads, sms=sms)
    handoff = amount("handoff", handoff)
    few(queries * keys * heads, "steps", queries=queries, keys=keys, heads=heads)
    walks = [query_walk(key, queries, keys, causal, rows) for key in range(keys)]
    turns = {  # of a dQ: which keys add to it, first to last
        query: sorted((walk.index(query), key) for key, walk in enumerate(walks) if query in walk)
        for query in range(queries)
    }
    if rows != "shifted":
        turns = {query: sorted(turn, key=lambda at: at[1]) for query, turn in turns.items()}
    before = {
        (key, query): turn[i - 1][1] if i else None
        for query, turn in turns.items()
        for i, (_, key) in enumerate(turn)
    }
    if not ordered:
        before = dict.fromkeys(before)
    return _played(walks, before, heads, sms, handoff)


def _played(walks, before, heads, sms, handoff) -> list[Addition]:
    """The steps as they come, each program waiting for the additions before its own."""
    made: dict[tuple[int, int, int], Addition] = {}
    free = [(0.0, sm) for sm in range(sms)]
    heapify(free)
    waiting = [(head, key) for head in range(heads) for key in range(len(walks))][::-1]
    running = []  # sm, head, key, next step, start of that step, when its last part was added
    while waiting or running:
        while waiting and free:
            clock, sm = heappop(free)
            running.append([sm, *waiting.pop(), 0, clock, clock])
        moved = False
        for one in list(running):
            sm, head, key, step, start, last = one
            query = walks[key][step]
            other = before[key, query]
            if other is not None and (head, other, query) not in made:
                continue
            moved = True
            turn = made[head, other, query].added if other is not None else 0.0
            begun = max(start + 1, last, turn)
            made[head, key, query] = Addition(
                sm, head, key, query, start, start + 1, begun + handoff
            )
            one[3:] = step + 1, begun, begun + handoff
            if step + 1 == len(walks[key]):
                running.remove(one)
                heappush(free, (begun + handoff, sm))
        if not moved:
            raise ValueError("sms is too small: the programs that run wait for one that does not")
    return list(made.values())


def used(steps: list[Addition], sms: int) -> float:
    """The share of the multiprocessors' time in which they compute.

    >>> used(additions(4, 4, sms=4, causal=False, ordered=False), 4)
    1.0
    """
    (sms,) = sizes(sms=sms)
    if not steps:
        raise ValueError("steps is empty, must hold at least one")
    return sum(one.ready - one.start for one in steps) / sms / max(one.added for one in steps)


def kept(**how) -> float:
    """What is left of the speed when the additions have to be in one order.

    >>> kept(queries=8, keys=8, sms=8, causal=False, rows="shifted")
    1.0
    """
    how.pop("ordered", None)
    sms = how.get("sms", 132)
    free = used(additions(**{**how, "rows": "up", "ordered": False}), sms)
    return used(additions(**how, ordered=True), sms) / free


# FlashAttention-3's backward on an H100, bf16, causal, two sequences of 8192 tokens with 16 heads
# of 128, in TFLOP/s: pull request 1893 of Dao-AILab/flash-attention, September 2025. `down` is
# what it calls mblock reverse, `up` naive; SPT also takes the tiles of keys from the last.
DETERMINISTIC = {"atomic": 574.7, "up": 361.3, "down": 464.0, "spt": 474.0}
