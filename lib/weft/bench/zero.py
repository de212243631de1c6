"""ZeRO measured beside torch's own: DDP, ZeroRedundancyOptimizer, FSDP2.

`weft bench zero` trains the same small decoder from the same weights on the same bytes, ours and
theirs turn about in one run, each with its own defaults. Their losses have to be equal before any
time counts. Without a GPU there are two ranks with one thread each; with GPUs one rank on each.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from weft.bench.record import Record, Result
from weft.meter import live
from weft.nn.transformer import Config, loss, stages
from weft.run.world import World, launch
from weft.run.zero import Zero

COMMAND = "weft bench zero"
OURS = "weft"
PEERS = {0: "DDP", 1: "ZeroRedundancyOptimizer", 2: "ZeroRedundancyOptimizer", 3: "FSDP2"}
ADAMW = partial(torch.optim.AdamW, lr=1e-3, fused=True)


class Sizes(NamedTuple):
    """What is run: the model, sequences for each rank, and how often, in several launches."""

    config: Config = Config(layers=6, width=256, heads=4, seq=64)
    batch: int = 4
    warmup: int = 2
    repeats: int = 10
    rounds: int = 4


FULL = Sizes()
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now
Step = Callable[[], Tensor]


def bench(progress: Progress, sizes: Sizes = FULL) -> list[Record]:
    """All records of the topic: seconds of a step, and the most bytes alive in one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ranks = torch.cuda.device_count() if device == "cuda" else 2
    rounds = []
    for done in range(sizes.rounds):
        progress(0.9 * done / sizes.rounds, 1.0, f"steps of {ranks} ranks, ours and torch's")
        rounds.append(launch(_all_times, ranks, sizes, timeout=1800)[0])
    progress(0.9, 1.0, "bytes alive, ours and torch's")
    peaks = launch(_all_peaks, ranks, sizes, timeout=1800)[0]
    timed, kept = [], []
    for stage, peer in PEERS.items():
        times = [[t for r in rounds for t in r[stage][who]] for who in (0, 1)]
        timed += _both(f"stage {stage}", peer, "s", *times)
        kept += _both(f"stage {stage}", peer, "B", *([peak] for peak in peaks[stage]))
    config = sizes.config
    what = f"{config.layers} blocks of width {config.width}, float32, ranks: {ranks}"
    titles = {
        "zero-step": (f"A training step, ours and torch's: {what}", timed),
        "zero-peak": (f"The most bytes of tensors alive on a rank: {what}", kept),
    }
    return [
        Record.here(name, title, "zero", COMMAND, results, device)
        for name, (title, results) in titles.items()
    ]


def _both(name: str, peer: str, unit: str, ours: list, theirs: list) -> list[Result]:
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return [
        Result.of(name, OURS, unit, ours),
        Result.of(name, peer, unit, theirs),
        Result.of(name, f"{OURS} / {peer}", "1", ratios),
    ]


# --- on a rank ------------------------------------------------------------------------------------


def _all_times(world: World, sizes: Sizes) -> dict[int, tuple[list[float], list[float]]]:
    return {stage: _times(world, stage, sizes) for stage in PEERS}


def _all_peaks(world: World, sizes: Sizes) -> dict[int, list[int]]:
    return {stage: _peaks(world, stage, sizes) for stage in PEERS}


def _times(world: World, stage: int, sizes: Sizes) -> tuple[list[float], list[float]]:
    steps = [make(world, stage, sizes) for make in (ours, theirs)]
    losses = [[step().item() for _ in range(3)] for step in steps]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=0, msg=f"losses of stage {stage}")
    times: tuple[list[float], list[float]] = [], []
    for repeat in range(sizes.warmup + sizes.repeats):
        for who in (0, 1) if repeat % 2 else (1, 0):
            taken = _seconds(steps[who], world)
            if repeat >= sizes.warmup:
                times[who].append(taken)
    return times


def _peaks(world: World, stage: int, sizes: Sizes) -> list[int]:
    """The most bytes alive on the fullest rank, from the model's making on, over three steps."""
    found = []
    for make in (ours, theirs):
        with live(resized=True) as meter:
            step = make(world, stage, sizes)
            for _ in range(3):
                step()
            del step
        found.append(meter.peak)
    most = torch.tensor(found, device=world.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=world.group())
    return most.tolist()


def ours(world: World, stage: int, sizes: Sizes) -> Step:
    """A step under a stage of ours."""
    model, tokens, targets = _task(world, sizes)
    return partial(_step, zero := Zero(model, ADAMW, stage, world), zero, tokens, targets)


def theirs(world: World, stage: int, sizes: Sizes) -> Step:
    """A step of torch's counterpart."""
    model, tokens, targets = _task(world, sizes)
    if stage == 3:
        from torch.distributed.fsdp import fully_shard

        mesh = dist.DeviceMesh.from_group(world.group(), world.device.type)
        for child in (*model, model):
            fully_shard(child, mesh=mesh)
        return partial(_step, model, ADAMW(model.parameters()), tokens, targets)
    model = nn.parallel.DistributedDataParallel(model, process_group=world.group())
    if stage == 0:
        return partial(_step, model, ADAMW(model.parameters()), tokens, targets)
    with warnings.catch_warnings():  # of what else is in that package
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch.distributed.optim import ZeroRedundancyOptimizer
    kind, how = ADAMW.func, ADAMW.keywords
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), kind, process_group=world.group(), parameters_as_bucket_view=True, **how
    )
    return partial(_step, model, optimizer, tokens, targets)


def _task(world: World, sizes: Sizes) -> tuple[nn.Module, Tensor, Tensor]:
    """The model, the same on every rank, and this rank's bytes."""
    torch.manual_seed(0)
    (model,) = stages(sizes.config, 1)
    torch.manual_seed(1 + world.rank)
    data = torch.randint(sizes.config.vocab, (2, sizes.batch, sizes.config.seq))
    return model.to(world.device), *data.to(world.device)


def _step(model: Callable, optimizer: Any, tokens: Tensor, targets: Tensor) -> Tensor:
    value = loss(model(tokens), targets)
    value.backward()
    optimizer.step()
    optimizer.zero_grad()
    return value.detach()


def _seconds(step: Step, world: World) -> float:
    """From when the first rank starts until the last is done."""
    dist.barrier(group=world.group())
    start = time.perf_counter()
    step()
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)
    taken = torch.tensor([time.perf_counter() - start], dtype=torch.float64, device=world.device)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX, group=world.group())
    return taken.item()
