"""Collectives measured on a slow wire: ours beside gloo's, beside the formula, byte by byte.

`weft bench collectives` makes two nodes out of this machine: two networks of their own, joined by
a virtual cable that a token bucket holds to a given rate. Linux lets everybody do that where user
namespaces are allowed. Each node runs one rank; both programs are called turn about in one run,
and their results have to be equal before any time counts.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist

from weft.bench.record import Record, Result
from weft.plan.collectives import seconds, volume
from weft.plan.hardware import Link
from weft.run import collectives as ours
from weft.run.world import World, launch

COMMAND = "weft bench collectives"
OURS, THEIRS = "weft", "gloo"
RATIO = f"{OURS} / {THEIRS}"
OPS = ("reduce_scatter", "all_reduce", "all_gather", "all_to_all", "broadcast")
RANKS = 2
PAUSE = 0.1  # seconds

NODES = """
ip link set lo up
unshare -n sleep 600 & second=$!
while [ "$(readlink /proc/$second/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
ip link add eth0 type veth peer name eth0 netns $second
ip address add 10.77.0.1/24 dev eth0
ip link set eth0 up
{shape}
nsenter -t $second -n sh -e -c '
    ip link set lo up
    ip address add 10.77.0.2/24 dev eth0
    ip link set eth0 up
    {shape}
'
RANK=1 nsenter -t $second -n {node} & other=$!
RANK=0 {node}
wait $other
"""
SHAPE = "tc qdisc add dev eth0 root tbf rate {rate}bit burst 64kb latency 200ms"


class Sizes(NamedTuple):
    """What is run: bytes of float32 data on each rank, bits per second of the wire, how often."""

    nbytes: int = 8 * 2**20
    rate: int = 200_000_000
    warmup: int = 2
    repeats: int = 15


FULL = Sizes()
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now


def bench(progress: Progress, sizes: Sizes = FULL) -> list[Record]:
    """All records of the topic; RuntimeError where this kernel allows no networks of our own."""
    progress(0.0, 1.0, f"two nodes on a wire of {sizes.rate / 1e6:g} Mbit/s")
    times, wire, latency = across(sizes)
    link = Link("wire", sizes.rate / 8, median(latency))
    timed = [Result.of("message", "latency", "s", latency)]
    counted = []
    for op in OPS:
        predicted = seconds(op, sizes.nbytes, RANKS, link)
        both = {who: times[who][op] for who in (OURS, THEIRS)}
        ratios = [mine / other for mine, other in zip(*both.values(), strict=True)]
        timed.append(Result.of(op, "formula", "s", [predicted]))
        timed += [Result.of(op, who, "s", samples) for who, samples in both.items()]
        timed.append(Result.of(op, RATIO, "1", ratios))
        formula = float(volume(op, sizes.nbytes, RANKS))
        counted.append(Result.of(op, "formula", "B", [formula]))
        counted += [Result.of(op, who, "B", wire[who][op]) for who in (OURS, THEIRS)]
    what = f"{sizes.nbytes / 2**20:g} MiB, {RANKS} nodes, {sizes.rate / 1e6:g} Mbit/s"
    return [
        Record.here(
            "collectives-link", f"Collectives over a shaped wire: {what}", "collectives",
            COMMAND, timed,
        ),
        Record.here(
            "collectives-bytes", f"Bytes that the busier rank puts on the wire: {what}",
            "collectives", COMMAND, counted,
        ),
    ]  # fmt: skip


def across(sizes: Sizes) -> tuple[dict, dict, list[float]]:
    """Run `node` on two nodes: seconds and wire bytes by program and operation, and the latency."""
    node = f"{sys.executable} -m weft.bench.collectives {' '.join(map(str, sizes))}"
    script = NODES.format(shape=SHAPE.format(rate=sizes.rate), node=node)
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    unshare = ["unshare", "-Urnpf", "--kill-child", "--mount-proc", "sh", "-e", "-c", script]
    done = subprocess.run(unshare, capture_output=True, text=True, timeout=900, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RuntimeError(f"two nodes could not be made or failed: {last}")
    found = json.loads(lines[-1])
    return found["times"], found["wire"], found["latency"]


# --- on a node ------------------------------------------------------------------------------------


def node(sizes: Sizes) -> None:
    """One node's part; rank 0 prints what was measured."""
    found = launch(_measure, RANKS, sizes, backend="gloo", timeout=800)[0]
    if os.environ["RANK"] == "0":
        print(json.dumps(found), flush=True)


def _measure(world: World, sizes: Sizes) -> dict:
    """Every operation by both, turn about."""
    data = torch.randint(0, 8, (sizes.nbytes // 4,), generator=torch.Generator().manual_seed(1))
    data = (data + world.rank).float()
    calls = {OURS: _our_calls(world, data), THEIRS: _their_calls(world, data)}
    times = {who: {op: [] for op in OPS} for who in calls}
    wire = {who: {} for who in calls}
    for op in OPS:
        results = {who: calls[who][op]() for who in calls}
        torch.testing.assert_close(results[OURS], results[THEIRS], rtol=0, atol=0, msg=op)
        for who in calls:
            wire[who][op] = [_on_the_wire(calls[who][op], world) for _ in range(3)]
        for repeat in range(sizes.warmup + sizes.repeats):
            for who in (OURS, THEIRS) if repeat % 2 else (THEIRS, OURS):
                taken = _seconds(calls[who][op], world)
                if repeat >= sizes.warmup:
                    times[who][op].append(taken)
    return {"times": times, "wire": wire, "latency": _latency(world, sizes.repeats)}


def _our_calls(world: World, data: torch.Tensor) -> dict[str, Callable]:
    part = data.chunk(RANKS)[world.rank]
    return {
        "reduce_scatter": lambda: ours.reduce_scatter(data, world),
        "all_reduce": lambda: ours.all_reduce(data.clone(), world),
        "all_gather": lambda: ours.all_gather(part, world),
        "all_to_all": lambda: ours.all_to_all(data, world),
        "broadcast": lambda: ours.broadcast(data.clone(), world),
    }


def _their_calls(world: World, data: torch.Tensor) -> dict[str, Callable]:
    group, part = world.group(), data.chunk(RANKS)[world.rank]

    def reduce_scatter() -> torch.Tensor:
        result = torch.empty_like(part)
        dist.reduce_scatter(result, list(data.chunk(RANKS)), group=group)
        return result

    def all_reduce() -> torch.Tensor:
        result = data.clone()
        dist.all_reduce(result, group=group)
        return result

    def all_gather() -> torch.Tensor:
        result = torch.empty_like(data)
        dist.all_gather(list(result.chunk(RANKS)), part, group=group)
        return result

    def all_to_all() -> torch.Tensor:
        result = torch.empty_like(data)
        dist.all_to_all_single(result, data, group=group)
        return result

    def broadcast() -> torch.Tensor:
        result = data.clone()
        dist.broadcast(result, group=group, group_src=0)
        return result

    each = (reduce_scatter, all_reduce, all_gather, all_to_all, broadcast)
    return dict(zip(OPS, each, strict=True))


def _seconds(call: Callable[[], object], world: World) -> float:
    """From when the first rank starts until the last is done."""
    dist.barrier(group=world.group())
    start = time.perf_counter()
    call()
    taken = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX, group=world.group())
    return taken.item()


def _on_the_wire(call: Callable[[], object], world: World) -> float:
    """Bytes that the busier rank's network card has sent, headers and a barrier included."""
    dist.barrier(group=world.group())
    time.sleep(PAUSE)  # until what is still under way has gone
    before = _card()
    dist.barrier(group=world.group())
    call()
    dist.barrier(group=world.group())
    time.sleep(PAUSE)
    sent = torch.tensor([_card() - before], dtype=torch.float64)
    dist.all_reduce(sent, op=dist.ReduceOp.MAX, group=world.group())
    return sent.item()


def _card() -> int:
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.split()[0] == "eth0:")


def _latency(world: World, repeats: int) -> list[float]:
    """Half of the time that a byte takes to the other rank and back."""
    byte, samples = torch.zeros(1, dtype=torch.uint8), []
    for _ in range(repeats + 3):
        start = time.perf_counter()
        for sender in (0, 1):
            if world.rank == sender:
                dist.send(byte, group=world.group(), group_dst=1 - sender)
            else:
                dist.recv(byte, group=world.group(), group_src=sender)
        samples.append((time.perf_counter() - start) / 2)
    return samples[3:]


if __name__ == "__main__":
    node(Sizes(*map(int, sys.argv[1:])))
