"""The store beside plain direct I/O, the step beside its parts, Adam beside a copy, and a training.

`weft bench offload` writes and reads some GiB in a folder of its own on this machine's disk, which
is gone afterwards. Ours and the others take turns in one run, since a disk is never twice as fast.
"""

import json
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.bench import offload_disk
from weft.bench.offload_disk import GIB, MIB, OURS, Files, Progress, disk
from weft.bench.record import Record, Result
from weft.run.offload import Memory, Store, StreamingAdam, update

COMMAND = "weft bench offload"
ADAM = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}


class Sizes(NamedTuple):
    """What is moved, how often, and what is trained.

    A step of `pieces` pieces runs with a disk of `rate` bytes per second and a device that takes
    so many times its I/O to compute. Adam in memory is timed `repeats` times on `flat` numbers.
    """

    streamed: Files = Files()
    repeats: int = 15
    piece: int = 2**19
    pieces: int = 40
    rate: float = 100e6
    shares: tuple[float, ...] = (0.5, 1.0, 2.0)
    steps: int = 3
    flat: tuple[int, ...] = (2**20, 2**22, 2**24)
    training: tuple[str, ...] = (
        "--layers", "21", "--width", "1024", "--heads", "16", "--batch", "1", "--steps", "4",
        "--rate", "1e-4",
    )  # fmt: skip
    budget: int = 640  # MiB
    room: int = 7 * GIB


FULL = Sizes()


def bench(progress: Progress, sizes: Sizes = FULL) -> list[Record]:
    """All records of the topic."""
    streams = offload_disk.bench(lambda done, of, what: progress(0.3 * done / of, 1.0, what),
                                 sizes.streamed)  # fmt: skip
    with disk(sizes.room) as folder:
        steps = stepping(sizes, folder, progress)
        adams = speed(sizes, progress)
        runs = training(sizes, folder, progress)
    titles = {
        "offload-step": (
            f"A step of Adam in {sizes.pieces} pieces over the longer of computing and moving, "
            f"on a disk of {sizes.rate / 1e6:g} MB/s each way", steps,
        ),
        "offload-adam": ("Adam's step on flat fp32 state in memory, bytes moved over time", adams),
        "offload-training": (
            f"A decoder trained under a budget of {sizes.budget} MiB, and in memory", runs,
        ),
    }  # fmt: skip
    return streams + [
        Record.here(name, title, "offload", COMMAND, results)
        for name, (title, results) in titles.items()
    ]


# --- the step -------------------------------------------------------------------------------------


class Timed(StreamingAdam):
    """Beside Adam itself a device that takes some time for each piece, the host idle."""

    pause = 0.0

    def _move(self, state: Tensor, parts: list) -> bool:
        time.sleep(self.pause)
        return super()._move(state, parts)


class OneByOne(Store):
    """Nothing ahead and nothing behind: what overlap is compared with."""

    def prefetch(self, name: str, wait: bool = True) -> None:
        """Not now."""

    def write(self, name: str, tensor: Tensor, own: bool = False) -> None:
        """And wait until it is on the disk."""
        super().write(name, tensor, own)
        while self._written():
            pass


def stepping(sizes: Sizes, folder: Path, progress: Progress) -> list[Result]:
    """Steps over the longer of computing and moving, streamed and one thing after the other.

    What moving takes is the disk's rate, and what computing takes the device's pauses and Adam
    with the state in memory. One thread does Adam: to wake others after each pause takes longer
    than their share of the work.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _stepping(sizes, folder, progress)
    finally:
        torch.set_num_threads(threads)


def _stepping(sizes: Sizes, folder: Path, progress: Progress) -> list[Result]:
    """The same, with as many threads as there are."""
    results, moving = [], 12 * sizes.piece * sizes.pieces / sizes.rate
    adam = min(_steps(Memory(), 0.0, 4, sizes))
    for i, share in enumerate(sizes.shares):
        pause = share * moving / sizes.pieces
        computing = share * moving + adam
        for kind, who in ((Store, OURS), (OneByOne, "one after the other")):
            if kind is OneByOne and share != 1:
                continue  # where overlap can gain the most
            told = f"a step, computing {share:g} of moving: {who}"
            progress(0.3 + 0.2 * i / len(sizes.shares), 1.0, told)
            with kind(folder / "states", 6 * 12 * sizes.piece, rate=sizes.rate) as store:
                seconds = _steps(store, pause, sizes.steps if who == OURS else 1, sizes)
            shutil.rmtree(folder / "states")
            ratios = [second / max(computing, moving) for second in seconds]
            results.append(Result.of(f"computing {share:g} of moving", who, "1", ratios))
    return results


def _steps(store: Store | Memory, pause: float, count: int, sizes: Sizes) -> list[float]:
    """Seconds of some steps."""
    weight = nn.Parameter(torch.zeros(sizes.piece * sizes.pieces))
    weight.grad = torch.ones_like(weight)
    adam = Timed([weight], store, piece=sizes.piece)
    adam.pause, seconds = pause, []
    for _ in range(count):
        start = time.perf_counter()
        adam.step()
        seconds.append(time.perf_counter() - start)
    return seconds


# --- Adam -----------------------------------------------------------------------------------------


def speed(sizes: Sizes, progress: Progress) -> list[Result]:
    """Bytes per second of Adam's step as torch does it, and as a copy of its state would be."""
    results = []
    for numel in sizes.flat:
        progress(0.46, 1.0, f"Adam on {numel} numbers")
        rows = [torch.ones(numel) for _ in range(4)]
        how = ADAM | {"decoupled_weight_decay": False}
        weight = nn.Parameter(torch.ones(numel))
        weight.grad = torch.ones(numel)
        each = torch.optim.Adam([weight], foreach=False)
        other = torch.empty_like(rows[0])
        ways = {
            "fused": (28, partial(update, *([row] for row in rows), [1], how)),
            "a pass for each operation": (28, each.step),
            "copy": (8, partial(other.copy_, rows[0])),
        }
        rates: dict[str, list[float]] = {who: [] for who in ways}
        for turn in range(sizes.repeats + 1):
            for who in list(ways)[:: 1 if turn % 2 else -1]:
                moved, call = ways[who]
                start = time.perf_counter()
                call()
                if turn:
                    rates[who].append(moved * numel / (time.perf_counter() - start))
        results += [Result.of(f"{numel} numbers", who, "B/s", r) for who, r in rates.items()]
        pairs = zip(rates["fused"], rates["copy"], strict=True)
        results.append(
            Result.of(f"{numel} numbers", "fused / copy", "1", [a / b for a, b in pairs])
        )
    return results


# --- training -------------------------------------------------------------------------------------


def training(sizes: Sizes, folder: Path, progress: Progress) -> list[Result]:
    """The same training twice, in processes of their own: losses, peaks, bytes, seconds."""
    text = folder / "text"
    text.write_bytes(Path(torch.__file__).read_bytes())  # the same bytes for both, and no others
    base = ["--json", "--text", str(text), *sizes.training]
    ways = {
        OURS: ["--budget", str(sizes.budget), "--folder", str(folder)],
        "in memory": ["--in-memory"],
    }
    results, losses = [], {}
    for i, (who, more) in enumerate(ways.items()):
        progress(0.5 + 0.25 * i, 1.0, f"training, {who}")
        found = json.loads(_trained([*base, *more]))
        losses[who] = found.pop("losses")
        steps = len(losses[who])
        results.append(Result.of("loss, step by step", who, "nat", losses[who]))
        results.append(Result.of("step", who, "s", found.pop("seconds")))
        for what in ("read", "written"):
            found[f"{what} in a step"] = found.pop(what) / steps
        results += [Result.of(what, who, "B", [n]) for what, n in found.items() if n]
    apart = [abs(a - b) for a, b in zip(*losses.values(), strict=True)]
    results.append(Result.of("losses apart", "both", "nat", apart))
    results.append(Result.of("budget", OURS, "B", [sizes.budget * MIB]))
    return results


def _trained(arguments: list[str]) -> str:
    """What `weft run offload` prints in a process of its own, whose memory is that of one run."""
    command = [sys.executable, "-m", "weft.run.train.offload", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"training failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout
