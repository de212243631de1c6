"""A half of a layer over a slow wire, in pieces beside its matmuls and not: what is hidden.

Two nodes of one rank each, with a real and shaped wire between them. Two cores cannot compute
while they also carry tokens, so each matmul of activations sleeps, in proportion to its tokens,
and what is measured is the order of things. A matmul takes `ratio` times as long as its
gather or scatter is on the wire; at 1 the plan has it three quarters as long in two pieces.
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
from torch import Tensor, nn

from weft.bench.clock import AllRanks
from weft.bench.collectives import BOTH, NODES, SHAPE, UNSHARE
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.plan.collectives import seconds
from weft.plan.hardware import Link
from weft.run.tensor import ColumnLinear, RowLinear
from weft.run.tensor.exchange import Matmul, TensorRanks
from weft.run.world import World, launch

RANKS = 2
PLAIN, PIECES, PLAN = "one after the other", "in pieces", "in pieces, by the plan"


class WiredTensor(NamedTuple):
    """What is run: tokens, widths, bits per second of the wire, a matmul over its sending."""

    B: int = 1
    T: int = 1024
    D: int = 256
    F: int = 64
    rate: int = 100_000_000
    ratio: float = 1.0
    warmup: int = 1
    repeats: int = 11

    @property
    def sending(self) -> float:
        """Seconds that a gather or a scatter is on the wire."""
        nbytes = self.B * self.T * self.D * 4
        return seconds("all_gather", nbytes, RANKS, Link("wire", self.rate / 8, 0.0))

    @property
    def matmul(self) -> float:
        """Seconds of a matmul of all tokens."""
        return self.ratio * self.sending


FULL = WiredTensor()


def overlapped(run: BenchRun, sizes: WiredTensor = FULL) -> Found:
    """Seconds of a half's forward and backward, plain and in pieces, beside the plan's ratio."""
    run.progress(0.0, 1.0, f"two nodes on a wire of {sizes.rate / 1e6:g} Mbit/s")
    name = f"{sizes.B} × {sizes.T} tokens"
    found = {who: Measurement.of(name, who, "s", taken) for who, taken in across(sizes).items()}
    results = [*found.values(), found[PIECES].over(found[PLAIN])]
    hidden = min(sizes.matmul * (RANKS - 1) / RANKS, sizes.sending)
    least = 4 * (sizes.matmul + sizes.sending - hidden)
    results.append(Measurement.of(name, PLAN, "s", [least]))
    what = f"width {sizes.D}, {sizes.rate / 1e6:g} Mbit/s between two ranks"
    return f"Half a layer over a shaped wire, matmuls that sleep: {what}", results


LINK = BenchJob("tensor-link", overlapped)


def across(sizes: WiredTensor) -> dict[str, list[float]]:
    """Run `node` on two nodes: samples by what was measured.

    RuntimeError where this kernel allows no networks of our own.
    """
    node = f"{sys.executable} -m weft.bench.tensor.link {' '.join(map(str, sizes))}"
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


def node(sizes: WiredTensor) -> None:
    """One node's part; rank 0 prints what was measured."""
    found = launch(measured, RANKS, sizes, backend="gloo", timeout=800)[0]
    if os.environ["RANK"] == "0":
        print(json.dumps(found), flush=True)


class SlowRanks(TensorRanks):
    """Ranks whose matmuls of activations take as long as they are told."""

    token = 0.0

    def slow(self, x: Tensor, matmul: Matmul) -> Tensor:
        """A matmul, late."""
        time.sleep(self.token * x.shape[0] * x.shape[1])
        return matmul(x)

    def gather_matmul(self, x: Tensor, matmul: Matmul) -> tuple[Tensor, Tensor]:
        return super().gather_matmul(x, partial(self.slow, matmul=matmul))

    def matmul_scatter(self, x: Tensor, matmul: Matmul) -> Tensor:
        return super().matmul_scatter(x, partial(self.slow, matmul=matmul))

    def gather(self, x: Tensor) -> Tensor:
        return self.slow(super().gather(x), lambda whole: whole)

    def scatter(self, x: Tensor) -> Tensor:
        return super().scatter(self.slow(x, lambda whole: whole))


def measured(world: World, sizes: WiredTensor) -> dict[str, list[float]]:
    """Everybody's samples, in turns."""
    torch.manual_seed(0)
    up, down = nn.Linear(sizes.D, sizes.F, bias=False), nn.Linear(sizes.F, sizes.D, bias=False)
    x = torch.randn(sizes.B, sizes.T // RANKS, sizes.D, requires_grad=True)
    calls = {}
    for who, overlap in ((PLAIN, False), (PIECES, True)):
        layers = ColumnLinear(up, world, True, overlap), RowLinear(down, world, True, overlap)
        for layer in layers:
            layer.ranks, layer.checks = SlowRanks(world, True, overlap), False
            layer.ranks.token = sizes.matmul / (sizes.B * sizes.T)
        model = nn.Sequential(*layers)
        calls[who] = lambda model=model: model(x).sum().backward()
    return AllRanks(world, sizes.warmup, sizes.repeats).samples(calls)


if __name__ == "__main__":
    given = [float(x) if "." in x else int(x) for x in sys.argv[1:]]
    node(WiredTensor(*given))
