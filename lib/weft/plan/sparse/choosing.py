"""Attention that chooses its keys: what it costs to choose, and what is then attended to.

Work is in multiply-adds of one layer. DeepSeek Sparse Attention (DSA) scores every earlier token in
a small indexer and attends to the best of them in the latent form of MLA, in which all heads share
one row, and each head's share of a pair is wider than in the dense form.
"""

from collections.abc import Callable, Mapping
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from weft.plan.arguments import chosen as one_of
from weft.plan.arguments import number, sizes, whole

HEADS, KEY, VALUE = 128, 192, 128  # of DeepSeek V3.2's MLA, expanded: the dense form
LATENT, ROTARY = 512, 64  # a cached row; every head's key is all of it, its value the latent part
INDEXER_HEADS, INDEXER_WIDTH = 64, 128
QUERY_RANK, HIDDEN = 1536, 7168  # what an index's queries are made from, and its key and weights
CHOSEN = 2048
PER_PAIR = MappingProxyType({
    "dense": HEADS * (KEY + VALUE),
    "indexer": INDEXER_HEADS * INDEXER_WIDTH,
    "chosen": HEADS * (2 * LATENT + ROTARY),
})  # fmt: skip
# The indexer's own projections. Those of the attention are as many in both forms: what a row is
# expanded to K and V with, or queries and outputs are brought to the row and back with.
INDEXER_PER_TOKEN = QUERY_RANK * INDEXER_HEADS * INDEXER_WIDTH + HIDDEN * (
    INDEXER_WIDTH + INDEXER_HEADS
)
# Of a token, in a layer: its row, in fp8 with a scale in fp32 for each 128 of the latent part, and
# its index key, in fp8 with one scale.
ROW_BYTES = MappingProxyType({
    "bf16": 2 * (LATENT + ROTARY),
    "fp8": LATENT + 4 * LATENT // 128 + 2 * ROTARY,
})  # fmt: skip
INDEX_BYTES = INDEXER_WIDTH + 4


class ChosenWork(NamedTuple):
    """Multiply-adds to choose, and to attend to what was chosen."""

    indexer: int
    attention: int

    @property
    def total(self) -> int:
        """Both."""
        return self.indexer + self.attention


class Read(NamedTuple):
    """For one query: entries that are scored in order to choose, and entries attended to."""

    scored: int
    attended: int


def mla_work(T: int) -> int:
    """Multiply-adds of dense causal MLA over a prompt of T tokens, in one layer.

    >>> mla_work(1)
    40960
    """
    (T,) = sizes(T=T)
    return PER_PAIR["dense"] * (T * (T + 1) // 2)


def dsa_work(T: int, chosen: int = CHOSEN) -> ChosenWork:
    """Those of DSA: the indexer scores all pairs; the best `chosen` of a query are attended to.

    >>> work = dsa_work(131072)
    >>> f"{mla_work(131072) / work.total:.1f} {work.indexer / work.total:.0%}"
    '3.3 65%'
    """
    T, chosen = sizes(T=T, chosen=chosen)
    early = min(T, chosen)
    attended = early * (early + 1) // 2 + (T - early) * chosen
    return ChosenWork(PER_PAIR["indexer"] * (T * (T + 1) // 2), PER_PAIR["chosen"] * attended)


def dsa_crossing(chosen: int = CHOSEN, rate: float = 1.0, per_token: int = 0) -> int:
    """The least prompt for which DSA is less work than dense MLA, by multiply-adds.

    `rate` is how many times faster the indexer's are done: 2 where it runs in FP8 at full speed,
    without end, say 1e9, where dense MLA waits for the same choice. `per_token` are those that DSA
    alone needs for each token.

    >>> dsa_crossing(), dsa_crossing(rate=2), dsa_crossing(per_token=INDEXER_PER_TOKEN)
    (16315, 14371, 17225)
    """
    rate = number("rate", rate, "at least 1")
    if rate < 1:
        raise ValueError(f"rate is {rate}, must be at least 1")
    per_token = whole("per_token", per_token, 0)
    low, high = 1, 64 * (sizes(chosen=chosen)[0] + per_token // PER_PAIR["dense"])
    while low < high:  # the difference changes its sign once
        middle = (low + high) // 2
        work = dsa_work(middle, chosen)
        if work.indexer / rate + work.attention + per_token * middle < mla_work(middle):
            high = middle
        else:
            low = middle + 1
    return low


def dsa_saving(T: int, row: str = "bf16", chosen: int = CHOSEN) -> float:
    """How many times less of the cache a step of decoding reads than with dense MLA, in a layer.

    All index keys are read, and the rows of what is chosen; the cache holds all rows and both.

    >>> f"{dsa_saving(131072):.1f} {dsa_saving(131072, 'fp8'):.1f}"
    '7.7 4.6'
    """
    T, chosen = sizes(T=T, chosen=chosen)
    each = ROW_BYTES[one_of("row", row, ROW_BYTES)]
    return T * each / (T * INDEX_BYTES + min(T, chosen) * each)


def union(keys: int, chosen: int, queries: int) -> float:
    """The share of keys that some of these queries chose, if each chooses on its own, at random.

    >>> f"{union(131072, 2048, 128):.0%}"
    '87%'
    """
    keys, chosen, queries = sizes(keys=keys, chosen=chosen, queries=queries)
    return 1 - (1 - min(chosen, keys) / keys) ** queries


# As published; t tokens are visible to the query.
READS: Mapping[str, Callable[[int], Read]] = MappingProxyType({
    "dense": lambda t: Read(0, t),
    "window": lambda t: Read(0, min(t, 1024)),
    "bigbird": lambda t: Read(0, min(t, (3 + 2 + 3) * 64)),
    "streaming": lambda t: Read(0, min(t, 4 + 1020)),
    "moba": lambda t: Read(ceil(t / 4096), min(t, 12 * 4096)),
    "nsa": lambda t: Read(ceil(t / 16), min(t, ceil(t / 16) + 16 * 64 + 512)),
    "msa": lambda t: Read(t, min(t, 16 * 128)),
    "dsa": lambda t: Read(t, min(t, CHOSEN)),
})  # fmt: skip


def read(method: str, visible: int) -> Read:
    """What a query that could see `visible` tokens scores and attends to, as published.

    >>> read("nsa", 65536), read("dsa", 65536)
    (Read(scored=4096, attended=5632), Read(scored=65536, attended=2048))
    """
    (visible,) = sizes(visible=visible)
    return READS[one_of("method", method, READS)](visible)
