"""Records as a GPU would write them, with the names and sizes of the real benchmarks.

Every value in them is made up, so nothing but a test's own temporary folder may hold one.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import torch

from weft.bench import precision, roofline
from weft.bench import record as records
from weft.bench.attention import contest, on_gpu
from weft.bench.decode import kernel
from weft.bench.hopper import speed
from weft.bench.jobs import BenchRun, silent
from weft.bench.record import Record
from weft.plan.roofline.work import Work, operation

CHIP = {"chip": "h200", "gpu": "a test", "gpus": 1, "driver": "0"}


class Count:
    """A clock by which everything takes another time, never the same."""

    device = "meta"

    def __init__(self):
        self.times = itertools.count(1)

    def samples(self, calls, before=None) -> dict[str, list[float]]:
        return {who: [1e-3 * next(self.times) for _ in range(3)] for who in calls}


def _everyone(faces, qkv, do, causal, way, ours=(), wrong=0.0):
    return dict.fromkeys(faces)


def gpu_records(patch, committed: list[Record]) -> Iterator[Record]:
    """One of each record that a GPU makes; some are those of a processor under another chip."""
    patch.setattr(records, "machine", lambda device="cpu": CHIP)
    plain = SimpleNamespace(manual_seed=lambda _: None)
    real = torch.randn
    patch.setattr(torch, "Generator", lambda *_: plain)
    patch.setattr(torch, "randn", lambda *shape, generator=None, **how: real(*shape, **how))
    for module in (on_gpu, speed):
        patch.setattr(module, "accepted", _everyone)
    patch.setattr(contest, "_flex", lambda *_: None)
    patch.setattr(speed.fp8, "quantize", lambda *_: None)
    patch.setattr(speed.fp8, "signs", lambda *_: None)
    _decode_nothing(patch)
    names = (precision.OURS, precision.FIRST, precision.FUSED, precision.EACH)
    how = dict.fromkeys(names, (silent, precision.MIXED))
    patch.setattr(precision, "optimizers", lambda *_: how)
    run = BenchRun("meta", given=Count())
    for job in (*on_gpu.ON_GPU, *speed.SPEED, kernel.KERNEL):
        yield job._replace(on=("meta",)).record(run)
    (adam,) = (job for job in precision.JOBS if "cuda" in job.on)
    yield adam._replace(on=("meta",)).record(run, models=precision.ON_GPU)
    yield _roof()
    for one in committed:
        if one.name.startswith(("decode-generation", "decode-memory", "zero-")):
            yield Record(**{f: getattr(one, f) for f in one.__slots__} | {"machine": CHIP})


def _decode_nothing(patch) -> None:
    everyone = kernel.ways

    def made(case):
        return {who: lambda _: None for who in everyone(case)}

    patch.setattr(kernel, "ways", made)
    patch.setattr(kernel, "Cache", lambda *_, **__: SimpleNamespace(bytes=7))
    patch.setattr(kernel, "_can", lambda _: True)
    patch.setattr(kernel, "_demand_equal", lambda *_: None)
    patch.setattr(kernel, "graph", lambda *_: None)


def _roof() -> Record:
    sizes, job = roofline.CUDA, partial(roofline.Workload, call=silent)
    jobs = [job(name, "fp32", Work(1, 8)) for name in roofline.STREAMS]
    for dtype in sizes.dtypes:
        names = [f"matmul {side} {side} {side}" for side in sizes.squares]
        jobs += [job(f"square {name}", dtype, operation(name, dtype)) for name in names]
    jobs += [job(name, sizes.dtype, operation(name, sizes.dtype)) for name in sizes.operations]
    samples = Count().samples(range(len(jobs)))
    found = roofline.results(jobs, list(samples.values()), sizes)
    return Record.here("roofline", "Made up", "roofline", "weft bench roofline", found)
