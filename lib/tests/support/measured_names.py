"""Records as a GPU would write them, with the names and sizes of the real benchmarks.

Every value in them is made up, so nothing but a test's own temporary folder may hold one.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import torch

from weft.bench import attention, decode_kernel, hopper, precision, roofline
from weft.bench import record as records
from weft.bench.record import Record
from weft.plan.roofline.work import Work, operation

CHIP = {"chip": "h200", "gpu": "a test", "gpus": 1, "driver": "0"}


class Count:
    """A clock by which everything takes another time, never the same."""

    device = "meta"

    def __init__(self):
        self.times = itertools.count(1)

    def samples(self, calls) -> dict[str, list[float]]:
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
    for module in (attention, hopper):
        patch.setattr(module, "accepted", _everyone)
    patch.setattr(attention, "_flex", lambda *_: None)
    patch.setattr(hopper.fp8, "quantize", lambda *_: None)
    patch.setattr(hopper.fp8, "signs", lambda *_: None)
    yield from attention.on_gpu(attention.CUDA, _silent, Count())
    yield from hopper.on_gpu(hopper.SIZES, _silent, Count())
    yield _decoding(patch)
    yield from _adam(patch)
    yield _roof()
    for one in committed:
        if one.name in ("decode-generation", "decode-memory", "zero-step", "zero-peak"):
            yield Record(**{f: getattr(one, f) for f in one.__slots__} | {"machine": CHIP})


def _silent(*_):
    pass


def _decoding(patch) -> Record:
    everyone = decode_kernel.ways

    def made(case):
        return {who: lambda _: None for who in everyone(case)}

    patch.setattr(decode_kernel, "ways", made)
    patch.setattr(decode_kernel, "Cache", lambda *_, **__: SimpleNamespace(bytes=7))
    patch.setattr(decode_kernel, "_can", lambda _: True)
    patch.setattr(decode_kernel, "_demand_equal", lambda *_: None)
    patch.setattr(decode_kernel, "_recorded", lambda *_: None)
    patch.setattr(decode_kernel, "in_turns", lambda runs, _: Count().samples(runs))
    (made,) = decode_kernel.bench(_silent, decode_kernel.FULL._replace(device="meta"))
    return made


def _adam(patch) -> Iterator[Record]:
    names = (precision.OURS, precision.FIRST, precision.FUSED, precision.EACH)
    how = dict.fromkeys(names, (_silent, precision.MIXED))
    patch.setattr(precision, "optimizers", lambda *_: how)
    patch.setattr(precision, "in_turns", lambda calls, *_: Count().samples(calls))
    return precision.steps(_silent, precision.FULL, "meta")


def _roof() -> Record:
    sizes, job = roofline.CUDA, partial(roofline.Job, call=_silent)
    jobs = [job(name, "fp32", Work(1, 8)) for name in roofline.STREAMS]
    for dtype in sizes.dtypes:
        names = [f"matmul {side} {side} {side}" for side in sizes.squares]
        jobs += [job(f"square {name}", dtype, operation(name, dtype)) for name in names]
    jobs += [job(name, sizes.dtype, operation(name, sizes.dtype)) for name in sizes.operations]
    samples = Count().samples(range(len(jobs)))
    found = roofline.results(jobs, list(samples.values()), sizes)
    return Record.here("roofline", "Made up", "roofline", roofline.COMMAND, found)
