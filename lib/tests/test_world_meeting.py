"""Ranks meet in one store after others have met, or died, there."""

import threading
import time

import pytest
import torch.distributed as dist

from weft.run.meeting import meet


@pytest.fixture
def served():
    """Makes clients of one store, as each rank has one of its own."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return lambda: dist.TCPStore("127.0.0.1", server.port, is_master=False)


def met(served, n, late=()):
    """What each rank reads that every rank wrote in the part that it got."""
    said = [None] * n

    def rank(r):
        time.sleep(0.1 * (r in late))
        store = meet(served(), r, n)
        store.set(f"from {r}", f"{r}")
        said[r] = store, [store.get(f"from {other}") for other in range(n)]

    threads = [threading.Thread(target=rank, args=(r,), daemon=True) for r in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads), "some have not met"
    assert [words for _, words in said] == [[b"%d" % r for r in range(n)]] * n
    return [store for store, _ in said]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_nothing_of_an_earlier_meeting_is_found(served, n):
    for late in ((), (0,), range(1, n)):  # in every order: the old tokens are there, or not yet
        stores = met(served, n, late)
        assert not any(store.check(["failed"]) for store in stores)
        stores[0].set("failed", "long ago")
        assert all(store.check(["failed"]) for store in stores)


def test_a_rank_that_died_after_it_had_come_holds_nobody_up(served):
    served().set("weft/token/2", "of the dead")
    met(served, 3, late=(2,))
    met(served, 3, late=(0, 1))
