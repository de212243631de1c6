"""Where formats fail and what mends it, counted; and Adam's step as a share of a copy's bandwidth.

`weft bench precision` trains one small network in every way of weft.nn.precision and records how
far its loss ends above that of fp32, and how many gradients became zero. Then it times Adam's
step, in bytes that cannot be avoided over seconds, beside torch's own and a plain copy: on a
processor the reference, which makes a pass for each operation, on a GPU the kernels.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from weft.bench.jobs import Job
from weft.bench.record import Record, Result
from weft.kernels.precision import adam, per_tensor
from weft.nn.precision import WAYS, Task, distance, train
from weft.plan.precision import RECIPES, Recipe
from weft.ref.precision import MasterAdam
from weft.ref.precision import adam as reference

COMMAND = "weft bench precision"
OURS, FIRST, SAID, FUSED, EACH, COPY = (
    "weft", "weft, a launch per tensor", "reference", "torch.optim.Adam(fused=True)",
    "torch.optim.Adam(foreach=True)", "copy",
)  # fmt: skip
MIXED = Recipe("bf16", "bf16", "fp32", "fp32")
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now


class Sizes(NamedTuple):
    """The tasks to train, the tensors to step, and how often; a sample takes `least` seconds."""

    tasks: tuple[Task, ...] = (Task(steps=300), Task(steps=300, lr=2e-4))
    seeds: int = 3
    models: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("one tensor of 2^26", (2**26,)),
        ("a layer of width 4096", (3 * 2**24, 2**24, 2**26, 2**26, *[4096] * 9)),
        ("a thousand tensors of 10,000", (10_000,) * 1000),
    )
    warmup: int = 3
    repeats: int = 15
    least: float = 0.02


FULL = Sizes()
ON_CPU = FULL._replace(
    models=(("one tensor of 2^22", (2**22,)), ("a hundred tensors of 10,000", (10_000,) * 100)),
    warmup=1, repeats=7,
)  # fmt: skip


def bench(
    progress: Progress, sizes: Sizes | None = None, device: str | None = None
) -> Iterator[Record]:
    """The records of training and of Adam's step."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    sizes = sizes or (FULL if device == "cuda" else ON_CPU)
    trained = training(sizes, progress)
    title = "The same small network trained in several precisions, loss over that of fp32"
    yield Record.here("precision-training", title, "precision", COMMAND, trained)
    yield from steps(progress, sizes, device)


def jobs(device: str | None = None) -> list[Job]:
    """Each record by itself; beside a GPU the step alone, for training is the processor's."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda":
        return [Job(("precision-adam",), partial(steps, sizes=FULL, device=device), 40)]
    return [Job(("precision-training", "precision-adam"), partial(bench, device="cpu"))]


def steps(progress: Progress, sizes: Sizes, device: str) -> Iterator[Record]:
    """The record of Adam's step."""
    stepped = stepping(sizes, device, progress)
    title = "Adam's step: bytes that it cannot avoid, over its time"
    yield Record.here("precision-adam", title, "precision", COMMAND, stepped, device)


# --- training -------------------------------------------------------------------------------------


def training(sizes: Sizes, progress: Progress) -> list[Result]:
    """For every way and task: the loss over that of fp32, and the gradients that are zero.

    A sample is a seed. Results are named by the way, since a page has room for many rows.
    """
    results, total = [], len(sizes.tasks) * len(WAYS)
    for i, task in enumerate(sizes.tasks):
        tasks = [Task(**(vars(task) | {"seed": seed})) for seed in range(sizes.seeds)]
        exact = [train("fp32", one) for one in tasks]
        for j, way in enumerate(WAYS):
            progress(0.5 * (i * len(WAYS) + j) / total, 1.0, f"{way}, rate {task.lr:g}")
            runs = [train(way, one) for one in tasks]
            over = [distance(run, other) for run, other in zip(runs, exact, strict=True)]
            zeros = [run.zeros for run in runs]
            results.append(Result.of(way, f"loss at {task.lr:g}", "1", over))
            results.append(Result.of(way, f"zeros at {task.lr:g}", "1", zeros))
    return results


# --- Adam's step ----------------------------------------------------------------------------------


def stepping(sizes: Sizes, device: str, progress: Progress) -> list[Result]:
    """Bytes per second of every optimizer on every model, the copy's beside, and our ratios."""
    results = []
    for i, (name, shapes) in enumerate(sizes.models):
        progress(0.5 + 0.5 * i / len(sizes.models), 1.0, name)
        ways = optimizers(shapes, device)
        calls = {who: (call, recipe.moved * sum(shapes)) for who, (call, recipe) in ways.items()}
        source = torch.ones(sum(shapes) * MIXED.moved // 2, dtype=torch.uint8, device=device)
        goal = torch.empty_like(source)
        calls[COPY] = (lambda goal=goal, source=source: goal.copy_(source), 2 * len(source))
        times = in_turns({who: call for who, (call, _) in calls.items()}, sizes, device)
        rates = {who: [calls[who][1] / t for t in samples] for who, samples in times.items()}
        results += [Result.of(name, who, "B/s", samples) for who, samples in rates.items()]
        ours = OURS if OURS in rates else SAID
        for other in (COPY, FUSED):
            ratio = [a / b for a, b in zip(rates[ours], rates[other], strict=True)]
            results.append(Result.of(name, f"{ours} / {other}", "1", ratio))
        if OURS in rates:  # bf16 weights move as many bytes, but a step is what is waited for
            faster = [a / b for a, b in zip(times[FUSED], times[OURS], strict=True)]
            results.append(Result.of(f"{name}, speed", f"{OURS} / {FUSED}", "1", faster))
    return results


def optimizers(
    shapes: tuple[int, ...], device: str
) -> dict[str, tuple[Callable[[], object], Recipe]]:
    """A step of each, and what it keeps. torch's own has fp32 weights and no masters."""
    kernels = {OURS: adam, FIRST: per_tensor} if device == "cuda" else {SAID: reference}
    ways = {}
    for who, how in kernels.items():
        weights = parameters(shapes, torch.bfloat16, device)
        ways[who] = (MasterAdam(weights, adam=how).step, MIXED)
    theirs = {FUSED: {"fused": True}} | ({EACH: {"foreach": True}} if device == "cuda" else {})
    for who, how in theirs.items():
        weights = parameters(shapes, torch.float32, device)
        ways[who] = (torch.optim.Adam(weights, **how).step, RECIPES["fp32"])
    return ways


def parameters(shapes: tuple[int, ...], dtype: torch.dtype, device: str) -> list[Tensor]:
    """Weights with gradients."""
    dice = torch.Generator(device).manual_seed(0)
    weights = []
    for n in shapes:
        weight = Parameter(torch.randn(n, generator=dice, device=device).to(dtype))
        weight.grad = torch.randn(n, generator=dice, device=device).to(dtype)
        weights.append(weight)
    return weights


def in_turns(
    calls: dict[str, Callable[[], object]], sizes: Sizes, device: str
) -> dict[str, list[float]]:
    """Seconds of one call of each, round by round; every second round goes backwards."""
    for call in calls.values():  # compiles kernels and makes states
        _seconds(call, 1, device)
    often = {
        who: ceil(sizes.least / max(1e-6, _seconds(call, 1, device)))
        for who, call in calls.items()
    }  # fmt: skip
    times: dict[str, list[float]] = {who: [] for who in calls}
    for i in range(sizes.warmup + sizes.repeats):
        for who in calls if i % 2 else reversed(calls):
            times[who].append(_seconds(calls[who], often[who], device))
    return {who: samples[sizes.warmup :] for who, samples in times.items()}


def _seconds(call: Callable[[], object], times: int, device: str) -> float:
    """Of one call, from several in a row, launches included: a step is waited for."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / times
