"""Adam's step on a processor, in one pass and in many, beside a copy."""

from functools import partial

import torch
from torch import nn

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import rates
from weft.run.offload import update

HOW = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
HOW |= {"decoupled_weight_decay": False}
FLAT = (2**20, 2**22, 2**24)


def speed(run: BenchRun, flat: tuple[int, ...] = FLAT) -> Found:
    """Bytes per second of Adam's step on so many numbers, as torch does it, and of a copy."""
    clock, results = run.clock(1, 15), []
    for numel in run.each(flat, "Adam on {} numbers"):
        rows = [torch.ones(numel) for _ in range(4)]
        weight = nn.Parameter(torch.ones(numel))
        weight.grad = torch.ones(numel)
        each = torch.optim.Adam([weight], foreach=False)
        other = torch.empty_like(rows[0])
        calls = {
            "fused": partial(update, *([row] for row in rows), [1], HOW),
            "a pass for each operation": each.step,
            "copy": partial(other.copy_, rows[0]),
        }
        moved = dict.fromkeys(calls, 28 * numel) | {"copy": 8 * numel}
        found = rates(f"{numel} numbers", "B/s", moved, clock.samples(calls))
        results += [*found.values(), found["fused"].over(found["copy"])]
    return "Adam's step on flat fp32 state in memory, bytes moved over time", results


ADAM = BenchJob("offload-adam", speed)
