"""A shared expert beside a dispatch, on a wire that is slow: what of it is hidden, measured.

Two nodes of one rank each, with a real and shaped wire between them. Two cores cannot compute
while they also carry rows, so the shared expert sleeps, in forward and in backward, as long as a
dispatch's rows are on the wire; what is measured is the order of things.
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
from torch.autograd import Function

from weft.bench.clock import AllRanks
from weft.bench.collectives import BOTH, NODES, SHAPE, UNSHARE
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.nn.experts import SwitchMLP
from weft.plan.experts import sent
from weft.run.experts import ExpertParallel
from weft.run.world import World, launch

RANKS = 2
BESIDE, AFTER, ALONE = "shared expert beside", "shared expert after", "without a shared expert"


class WiredExperts(NamedTuple):
    """What is run: tokens of a rank, widths, bits per second of the wire, and how often."""

    T: int = 512
    D: int = 256
    F: int = 64
    rate: int = 100_000_000
    warmup: int = 2
    repeats: int = 15

    @property
    def dispatch(self) -> float:
        """Seconds that a dispatch's rows are on the wire, at even load."""
        return 8 * sent(self.T, self.D, RANKS, size=4) / 2 / self.rate


FULL = WiredExperts()


def overlapped(run: BenchRun, sizes: WiredExperts = FULL) -> Found:
    """Seconds of forward and backward with a shared expert beside the dispatch, after, without."""
    run.progress(0.0, 1.0, f"two nodes on a wire of {sizes.rate / 1e6:g} Mbit/s")
    name = f"{sizes.T} tokens a rank"
    found = {who: Measurement.of(name, who, "s", taken) for who, taken in across(sizes).items()}
    results = [*found.values(), found[BESIDE].over(found[AFTER]), found[BESIDE].over(found[ALONE])]
    what = f"width {sizes.D}, {sizes.rate / 1e6:g} Mbit/s between two ranks"
    return f"A layer of experts over a shaped wire, a shared expert that sleeps: {what}", results


LINK = BenchJob("experts-link", overlapped)


def across(sizes: WiredExperts) -> dict[str, list[float]]:
    """Run `node` on two nodes: samples by what was measured.

    RuntimeError where this kernel allows no networks of our own.
    """
    node = f"{sys.executable} -m weft.bench.experts.link {' '.join(map(str, sizes))}"
    script = NODES.format(shape=SHAPE.format(rate=sizes.rate)) + BOTH.format(node=node)
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [*UNSHARE, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RuntimeError(f"two nodes could not be made or failed: {last}")
    return json.loads(lines[-1])


# --- on a node ------------------------------------------------------------------------------------


def node(sizes: WiredExperts) -> None:
    """One node's part; rank 0 prints what was measured."""
    found = launch(measured, RANKS, sizes, backend="gloo", timeout=800)[0]
    if os.environ["RANK"] == "0":
        print(json.dumps(found), flush=True)


class Sleep(Function):
    """The same tensor, so many seconds later, in backward too."""

    @staticmethod
    def forward(ctx, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, dy: Tensor):
        time.sleep(ctx.seconds)
        return dy, None


def measured(world: World, sizes: WiredExperts) -> dict[str, list[float]]:
    """Everybody's samples, in turns."""
    torch.manual_seed(0)
    layer = ExpertParallel(SwitchMLP(sizes.D, sizes.F, 8), world)
    torch.manual_seed(1 + world.rank)
    x = torch.randn(sizes.T, sizes.D, requires_grad=True)

    def step(who: str) -> None:
        shared = partial(Sleep.apply, x, sizes.dispatch)
        if who == BESIDE:
            y, found = layer(x, beside=shared)
        else:
            y, found = layer(x), shared() if who == AFTER else 0.0
        (y + found).sum().backward()

    calls = {who: partial(step, who) for who in (BESIDE, AFTER, ALONE)}
    return AllRanks(world, sizes.warmup, sizes.repeats).samples(calls)


if __name__ == "__main__":
    node(WiredExperts(*map(int, sys.argv[1:])))
