"""Ranks that meet in a store where others may have met before them.

torchrun keeps one store for all attempts of a run. What the ranks of an earlier attempt wrote
there, addresses and the news of their end, stands under the names that the next ones will look
up. So those that are here now first agree on a name that nobody had before.
"""

import time
from uuid import uuid4

import torch.distributed as dist

PAUSE = 0.01  # seconds between two looks at who has come
FAILED = "failed"  # the key under which the first rank that fails says so


def meet(store: dist.Store, rank: int, n: int) -> dist.Store:
    """A part of the store that only these n ranks know; each calls it once.

    Rank r leaves a token that is its own, and rank 0 answers every token it sees with
    the same name. A token that somebody dead has left is answered too, and nobody
    counts himself in for it: rank 0 looks until all who live have done so.
    """
    if rank:
        token = uuid4().hex
        store.set(f"weft/token/{rank}", token)
        name = store.get(f"weft/answer/{token}").decode()
        store.add(f"weft/here/{name}", 1)
        return dist.PrefixStore(f"weft/{name}", store)
    name, answered = uuid4().hex, set()
    while store.add(f"weft/here/{name}", 0) < n - 1:
        for key in (f"weft/token/{r}" for r in range(1, n)):
            token = store.get(key).decode() if store.check([key]) else None
            if token and token not in answered:
                answered.add(token)
                store.set(f"weft/answer/{token}", name)
        time.sleep(PAUSE)
    return dist.PrefixStore(f"weft/{name}", store)


def stay_until_all_are_connected(store: dist.Store, n: int) -> None:
    """Return when all n ranks have called it, each with its connections made.

    Who leaves sooner, because its work failed at once, breaks off the connecting of
    the others. They would not only fail as well: torch numbers groups, counts one that
    was not completed, and then looks for the next under a name that nobody else has.
    ConnectionError where one has said that it failed.
    """
    store.add("connected", 1)
    while store.add("connected", 0) < n:
        if store.check([FAILED]):
            raise ConnectionError("another rank failed before all were connected")
        time.sleep(PAUSE)
