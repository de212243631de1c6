"""Where formats fail and what mends it, counted; and Adam's step as a share of a copy's bandwidth.

`weft bench precision` trains one small network in every way of weft.nn.precision and records how
far its loss ends above that of fp32, and how many gradients became zero. Then it times Adam's
step, in bytes that cannot be avoided over seconds, beside torch's own and a plain copy: on a
processor the reference, which makes a pass for each operation, on a GPU the kernels.
"""

from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.nn import Parameter

from weft.bench.clock import Call
from weft.bench.jobs import BOTH, BenchJob, BenchRun, Found
from weft.bench.record import Measurement, rates
from weft.kernels.precision import adam, per_tensor
from weft.nn.precision import WAYS, Task, distance, train
from weft.plan.precision import RECIPES, Recipe
from weft.ref.precision import MasterAdam
from weft.ref.precision import adam as reference

OURS, FIRST, SAID, FUSED, EACH, COPY = (
    "weft", "weft, a launch per tensor", "reference", "torch.optim.Adam(fused=True)",
    "torch.optim.Adam(foreach=True)", "copy",
)  # fmt: skip
MIXED = Recipe("bf16", "bf16", "fp32", "fp32")
TASKS = (Task(steps=300), Task(steps=300, lr=2e-4))
Models = dict[str, tuple[int, ...]]  # what tensors a model has, by its name
ON_GPU: Models = {
    "one tensor of 2^26": (2**26,),
    "a layer of width 4096": (3 * 2**24, 2**24, 2**26, 2**26, *[4096] * 9),
    "a thousand tensors of 10,000": (10_000,) * 1000,
}
ON_CPU: Models = {
    "one tensor of 2^22": (2**22,),
    "a hundred tensors of 10,000": (10_000,) * 100,
}


# --- training -------------------------------------------------------------------------------------


def training(run: BenchRun, tasks: tuple[Task, ...] = TASKS, seeds: int = 3) -> Found:
    """For every way and task: the loss over that of fp32, and the gradients that are zero.

    A sample is a seed. Results are named by the way, since a page has room for many rows.
    """
    results = []
    seeded = {t.lr: [Task(**(vars(t) | {"seed": seed})) for seed in range(seeds)] for t in tasks}
    exact = {lr: [train("fp32", task) for task in some] for lr, some in seeded.items()}
    for lr, way in run.each(product(seeded, WAYS), "rate and way: {}"):
        trained = [train(way, task) for task in seeded[lr]]
        over = [distance(one, other) for one, other in zip(trained, exact[lr], strict=True)]
        results.append(Measurement.of(way, f"loss at {lr:g}", "1", over))
        results.append(Measurement.of(way, f"zeros at {lr:g}", "1", [one.zeros for one in trained]))
    return "The same small network trained in several precisions, loss over that of fp32", results


# --- Adam's step ----------------------------------------------------------------------------------


def stepping(run: BenchRun, models: Models | None = None) -> Found:
    """Bytes per second of every optimizer on every model, the copy's beside, and our ratios."""
    device, results = run.device, []
    clock = run.clock(*((3, 15) if device == "cuda" else (1, 7)), least=0.02)
    models = models or (ON_GPU if device == "cuda" else ON_CPU)
    for name in run.each(models):
        shapes = models[name]
        ways = optimizers(shapes, device)
        source = torch.ones(sum(shapes) * MIXED.moved // 2, dtype=torch.uint8, device=device)
        calls = {who: call for who, (call, _) in ways.items()}
        calls[COPY] = partial(torch.empty_like(source).copy_, source)
        moved = {who: recipe.moved * sum(shapes) for who, (_, recipe) in ways.items()}
        moved[COPY] = 2 * len(source)
        times = clock.samples(calls)
        found = rates(name, "B/s", moved, times)
        ours = found.get(OURS) or found[SAID]
        results += [*found.values(), ours.over(found[COPY]), ours.over(found[FUSED])]
        if OURS in found:  # bf16 weights move as many bytes, but a step is what is waited for
            theirs, mine = (
                Measurement.of(f"{name}, speed", who, "s", times[who]) for who in (FUSED, OURS)
            )
            results.append(theirs.over(mine, f"{OURS} / {FUSED}"))
    return "Adam's step: bytes that it cannot avoid, over its time", results


JOBS = (
    BenchJob("precision-training", training),
    BenchJob("precision-adam", stepping, BOTH, seconds=40),
)


def optimizers(shapes: tuple[int, ...], device: str) -> dict[str, tuple[Call, Recipe]]:
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
