"""What a ring hides of a slow wire: two nodes, two ranks in each, and a kernel that sleeps.

Two cores cannot compute for four ranks at once. So the kernel waits as long as a chip of a given
rate would compute for the pairs that it is given, and what is measured is the order of things: how
much of the sending, over a real and shaped wire, lies behind it. The rate is such that the longest
step of a zigzag ring computes as long as its block is on the wire.
"""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from weft.bench.clock import AllRanks
from weft.bench.collectives import NODES, SHAPE, UNSHARE
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.plan.ring import longest_path, sent, work
from weft.run.ring import attention
from weft.run.world import World, launch

RANKS, NODE = 4, 2
# Ranks 0 and 1 are in the first node, 2 and 3 in the second: one hop in two crosses the wire.
ALL = """
others=
for rank in 1 2 3; do
    within=; [ $rank -lt 2 ] || within="nsenter -t $second -n"
    RANK=$rank LOCAL_RANK=$((rank % 2)) $within {node} & others="$others $!"
done
RANK=0 LOCAL_RANK=0 {node}
wait $others
"""


class WiredRing(NamedTuple):
    """What is run: tokens, heads, bits per second of the wire, seconds of a block on it."""

    T: int = 4096
    H: int = 4
    G: int = 4
    K: int = 64
    rate: int = 100_000_000
    ratio: float = 1.0  # a zigzag step's computing over a block's sending
    warmup: int = 1
    repeats: int = 7


FULL = WiredRing()


def overlapped(run: BenchRun, sizes: WiredRing = FULL) -> Found:
    """Seconds of a causal forward by layouts and methods, beside computing and sending alone."""
    run.progress(0.0, 1.0, f"two nodes on a wire of {sizes.rate / 1e6:g} Mbit/s")
    found = across(sizes)
    results = []
    for name, taken in found.items():
        results.append(Measurement.of(name, "weft", "s", taken))
    by_name = {result.name: result for result in results}
    zigzag, contiguous = by_name["ring, zigzag"], by_name["ring, contiguous"]
    most = [max(pair) for pair in zip(found["computing"], found["sending"], strict=True)]
    ideal = Measurement.of("ring, zigzag", "max(computing, sending)", "s", most)
    results += [ideal, zigzag.over(ideal), contiguous.over(zigzag, "contiguous / zigzag")]
    what = f"{RANKS} ranks in two nodes, {sizes.rate / 1e6:g} Mbit/s between them"
    return f"A ring over a shaped wire, kernels that sleep: {what}", results


LINK = BenchJob("ring-link", overlapped)


def across(sizes: WiredRing) -> dict[str, list[float]]:
    """Run `node` on two nodes: samples by what was measured.

    RuntimeError where this kernel allows no networks of our own.
    """
    node = f"{sys.executable} -m weft.bench.ring.link {' '.join(map(str, sizes))}"
    script = NODES.format(shape=SHAPE.format(rate=sizes.rate)) + ALL.format(node=node)
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": str(NODE), "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [*UNSHARE, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RuntimeError(f"two nodes could not be made or failed: {last}")
    return json.loads(lines[-1])


# --- on a node ------------------------------------------------------------------------------------


def node(sizes: WiredRing) -> None:
    """One rank's part; rank 0 prints what was measured."""
    found = launch(_measured, RANKS, sizes, backend="gloo", timeout=800)[0]
    if os.environ["RANK"] == "0":
        print(json.dumps(found), flush=True)


def pair_seconds(sizes: WiredRing) -> float:
    """How long the kernel sleeps for a pair of one head.

    A zigzag step takes `ratio` of a block's sending.
    """
    block = sent(sizes.T, RANKS, sizes.H, sizes.G, sizes.K, size=4) / (RANKS - 1)
    step = max(max(row[1:]) for row in work(sizes.T, RANKS, "zigzag"))
    return sizes.ratio * 8 * block / sizes.rate / (sizes.H * step)


def _measured(world: World, sizes: WiredRing) -> dict[str, list[float]]:
    c = sizes.T // RANKS
    q, k, v = (torch.randn(1, c, heads, sizes.K) for heads in (sizes.H, sizes.G, sizes.G))
    slow, fast = partial(sleeping, pair_seconds(sizes)), partial(sleeping, 0.0)
    ways = {
        "ring, zigzag": ("zigzag", "ring", slow),
        "ring, contiguous": ("contiguous", "ring", slow),
        "ulysses": ("zigzag", "ulysses", slow),
        "gather": ("zigzag", "gather", slow),
        "sending": ("zigzag", "ring", fast),
    }
    calls = {
        name: partial(attention, q, k, v, world, True, None, layout, method, kernel)
        for name, (layout, method, kernel) in ways.items()
    }
    path = longest_path(sizes.T, RANKS, "zigzag") * sizes.H * pair_seconds(sizes)
    calls["computing"] = partial(time.sleep, path)
    return AllRanks(world, sizes.warmup, sizes.repeats).samples(calls)


def sleeping(
    seconds: float,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    mask: Tensor | None = None,
    lse: bool = False,
) -> tuple[Tensor, Tensor]:
    """A kernel that takes so many seconds for each visible pair of a head, and gives zeros."""
    T, S = q.shape[1], k.shape[1]
    time.sleep(seconds * q.shape[2] * (T * (T + 1) // 2 if causal else T * S))
    return q.new_zeros(*q.shape[:3], v.shape[-1]), q.new_zeros(q.shape[:3])


if __name__ == "__main__":
    given = [float(x) if "." in x else int(x) for x in sys.argv[1:]]
    node(WiredRing(*given))
