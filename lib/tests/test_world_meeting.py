"""Ranks meet in one store after others have met, or died, there."""

import threading
import time

import pytest
import torch.distributed as dist

from weft.run.world.rendezvous import meet, stay_until_all_are_connected


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


def test_nobody_leaves_before_all_are_connected(served):
    left = []

    def rank(r, seconds):
        time.sleep(seconds)
        stay_until_all_are_connected(served(), 3)
        left.append((r, time.monotonic()))

    threads = [threading.Thread(target=rank, args=(r, 0.0), daemon=True) for r in (0, 1)]
    for thread in threads:
        thread.start()
    threads[0].join(0.3)
    assert not left
    last = time.monotonic()
    rank(2, 0.0)
    for thread in threads:
        thread.join(20)
    assert {r for r, _ in left} == {0, 1, 2} and min(at for _, at in left) >= last


def test_who_waits_hears_of_a_rank_that_failed(served):
    served().set("failed", "boom")
    with pytest.raises(ConnectionError, match="failed before all were connected"):
        stay_until_all_are_connected(served(), 2)
