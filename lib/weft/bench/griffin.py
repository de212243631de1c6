"""The scan's bandwidth as a share of a copy's.

What counts is bytes that cannot be avoided: a, x and h once each, and backward a, h, dh, da and
dx. On a GPU both versions take every size, so that a record also says whether `scan` chooses
rightly; on a processor it is a loop in torch, at sizes that it can do.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from weft.bench.clock import Call
from weft.bench.jobs import BOTH, BenchJob, BenchRun, Found
from weft.bench.record import rates
from weft.kernels.griffin import chunked, scan, sequential

OURS, LOOP, COPY = "weft", "loop", "copy"
FACES: dict[str, Callable] = {
    OURS: scan, "weft, in one pass": sequential, "weft, in chunks": chunked,
}  # fmt: skip
MOVED = {"forward": 3, "backward": 5}  # tensors that are read or written


class ScanSize(NamedTuple):
    """a and x [B, T, D]."""

    B: int
    T: int
    D: int

    def __str__(self) -> str:
        return f"{self.B} × {self.T} × {self.D}"


class ScanSizes(NamedTuple):
    """What is scanned, and bytes of a copy."""

    cases: tuple[ScanSize, ...] = (
        ScanSize(8, 4096, 2560),
        ScanSize(1, 32_768, 2560),
        ScanSize(1, 8192, 2560),
        ScanSize(64, 1024, 4096),
        ScanSize(1, 65_536, 256),
    )
    copied: int = 2**30
    rounds: tuple[int, int] = (3, 15)


FULL = ScanSizes()
ON_CPU = ScanSizes((ScanSize(8, 256, 2560), ScanSize(1, 4096, 256)), 2**26, (1, 5))


def scanning(run: BenchRun, sizes: ScanSizes | None = None, way: str = "forward") -> Found:
    """Bytes per second of every version at every size, the copy's beside, and our share of it."""
    faces = contest(run.device)
    sizes = sizes or (FULL if OURS in faces else ON_CPU)
    clock, results = run.clock(*sizes.rounds, cold=True), []
    source = torch.ones(sizes.copied, dtype=torch.uint8, device=clock.device)
    copy = partial(torch.empty_like(source).copy_, source)
    for case in run.each(sizes.cases):
        a, x, dh = given(case, clock.device)
        calls = {who: timed(face, a, x, dh, way) for who, face in faces.items()} | {COPY: copy}
        done = dict.fromkeys(faces, float(MOVED[way] * a.numel() * a.element_size()))
        done[COPY] = 2.0 * sizes.copied
        found = rates(str(case), "B/s", done, clock.samples(calls))
        results += [*found.values(), found[next(iter(faces))].over(found[COPY])]
    return (
        f"The scan h = a h + x in fp32, {way}: bytes that it cannot avoid, over its time",
        results,
    )


def contest(device: str) -> dict[str, Callable]:
    """Who scans on a device; whose share of the copy is told comes first."""
    return FACES if device == "cuda" else {LOOP: loop}


def loop(a: Tensor, x: Tensor) -> Tensor:
    """The recurrence, a call of torch for each step."""
    h, rows = torch.zeros_like(x[:, 0]), []
    for a_t, x_t in zip(a.unbind(1), x.unbind(1), strict=True):
        h = torch.addcmul(x_t, a_t, h)
        rows.append(h)
    return torch.stack(rows, 1)


def given(case: ScanSize, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """a between 0 and 1, x, and the gradient of h."""
    dice = torch.Generator(device).manual_seed(case.T)
    a, x, dh = (torch.randn(*case, device=device, generator=dice) for _ in range(3))
    return a.sigmoid().requires_grad_(), x.requires_grad_(), dh


def timed(face: Callable, a: Tensor, x: Tensor, dh: Tensor, way: str) -> Call:
    """A call that gives h, or the gradients of a and x through a graph that is kept."""
    if way == "forward":
        return partial(face, a.detach(), x.detach())
    h = face(a, x)
    return lambda: torch.autograd.grad(h, (a, x), dh, retain_graph=True)


JOBS = tuple(BenchJob(f"griffin-scan-{way}", partial(scanning, way=way), BOTH, 30) for way in MOVED)
