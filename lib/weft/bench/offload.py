"""The store beside plain direct I/O, the step beside its parts, Adam beside a copy, and a training.

`weft bench offload` writes and reads some GiB in a folder of its own on this machine's disk, which
is gone afterwards. Ours and the others take turns in one run, since a disk is never twice as fast.
"""

import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.bench.record import Record, Result
from weft.run.offload import Store
from weft.run.offload_adam import StreamingAdam, update
from weft.run.offload_direct import direct, durable, forget

COMMAND = "weft bench offload"
OURS, COPIED, DIRECT, DD, MAPPED = "weft", "weft, copied", "direct I/O", "dd", "mmap"
IN_MEMORY = {"tmpfs", "ramfs"}  # file systems that are none of a disk
MIB, GIB = 2**20, 2**30
BLOCK = 4 * MIB
ADAM = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now


class Sizes(NamedTuple):
    """What is moved, how often, and what is trained.

    Files of a given size are streamed, `repeats` times by each; a step of `pieces` pieces runs
    with a disk of `rate` bytes per second and a device that takes so many times its I/O to compute.
    """

    files: int = 8
    size: int = 64 * MIB
    repeats: int = 7
    piece: int = 2**18
    pieces: int = 64
    rate: float = 100e6
    shares: tuple[float, ...] = (0.5, 1.0, 2.0)
    steps: int = 3
    flat: tuple[int, ...] = (2**20, 2**22, 2**24)
    training: tuple[str, ...] = (
        "--layers", "21", "--width", "1024", "--heads", "16", "--batch", "1", "--steps", "4",
        "--rate", "1e-4",
    )  # fmt: skip
    budget: int = 768  # MiB
    room: int = 7 * GIB


FULL = Sizes()


def bench(progress: Progress, sizes: Sizes = FULL) -> list[Record]:
    """All records of the topic."""
    with disk(sizes.room) as folder:
        streams = streaming(sizes, folder, progress)
        steps = stepping(sizes, folder, progress)
        adams = speed(sizes, progress)
        runs = training(sizes, folder, progress)
    each = f"{sizes.files} files of {sizes.size // MIB} MiB"
    titles = {
        "offload-disk": (f"Writing and reading {each}, to the disk and from it", streams),
        "offload-step": (
            f"A step of Adam in {sizes.pieces} pieces over the longer of computing and moving, "
            f"on a disk of {sizes.rate / 1e6:g} MB/s each way", steps,
        ),
        "offload-adam": ("Adam's step on flat fp32 state in memory, bytes moved over time", adams),
        "offload-training": (
            f"A decoder trained under a budget of {sizes.budget} MiB, and in memory", runs,
        ),
    }  # fmt: skip
    return [
        Record.here(name, title, "offload", COMMAND, results)
        for name, (title, results) in titles.items()
    ]


@contextmanager
def disk(room: int) -> Iterator[Path]:
    """A folder on a real disk with so much room, removed at the end with all that is in it."""
    for place in (tempfile.gettempdir(), "/var/tmp", os.getcwd()):
        free = shutil.disk_usage(place).free if os.access(place, os.W_OK) else 0
        if free >= room and file_system(Path(place)) not in IN_MEMORY:
            with tempfile.TemporaryDirectory(dir=place, prefix="weft-bench-") as folder:
                yield Path(folder)
            return
    raise RuntimeError(f"no disk here has {room / GIB:.1f} GiB free for files, of a bench or so")


def file_system(place: Path) -> str:
    """What kind of file system a folder is on, where Linux says so."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    mounts = {line.split()[4]: line.partition(" - ")[2].split()[0] for line in lines}
    path = place.resolve()
    return next((mounts[str(p)] for p in (path, *path.parents) if str(p) in mounts), "unknown")


# --- streaming ------------------------------------------------------------------------------------


def streaming(sizes: Sizes, folder: Path, progress: Progress) -> list[Result]:
    """Bytes per second of each, written and read, and ours over direct I/O's pair by pair."""
    ways = {OURS: ours, COPIED: copied, DIRECT: by_hand, MAPPED: mapped}
    ways |= {DD: by_dd} if shutil.which("dd") else {}
    rates: dict[tuple[str, str], list[float]] = {}
    data = torch.randint(256, (sizes.size,), dtype=torch.uint8)
    for turn in range(sizes.repeats + 1):  # the first to warm up
        for i, who in enumerate(list(ways)[:: 1 if turn % 2 else -1]):
            progress(0.3 * (turn + i / len(ways)) / (sizes.repeats + 1), 1.0, f"streaming: {who}")
            place = folder / "streamed"
            place.mkdir(mode=0o700)
            seconds = ways[who](place, data, sizes.files)
            shutil.rmtree(place)
            for what, taken in zip(("write", "read"), seconds, strict=True):
                if turn and taken:
                    rate = sizes.files * sizes.size / taken
                    rates.setdefault((what, who), []).append(rate)
    results = [Result.of(what, who, "B/s", samples) for (what, who), samples in rates.items()]
    for what in ("write", "read"):
        pairs = zip(rates[what, OURS], rates[what, DIRECT], strict=True)
        results.append(Result.of(what, f"{OURS} / {DIRECT}", "1", [a / b for a, b in pairs]))
    return results


def ours(folder: Path, data: Tensor, files: int) -> tuple[float, float]:
    """Through a store: tensors that are its own handed over, then all read, one ahead."""
    with Store(folder, budget=6 * data.nbytes) as store:
        store.write("source", data)
        for i in range(3):  # buffers are there before the clock runs, as by_hand's is
            store.write(f"t{i}", store.read("source"), own=True)
        store.flush()
        source, names = store.read("source"), [f"t{i}" for i in range(files)]
        start = time.perf_counter()
        for name in names:
            store.write(name, source, own=True)
        store.flush()
        written = time.perf_counter() - start
        del source
        start = time.perf_counter()
        for i, name in enumerate(names):
            for ahead in names[i : i + 2]:
                store.prefetch(ahead)
            store.read(name)
        return written, time.perf_counter() - start


def copied(folder: Path, data: Tensor, files: int) -> tuple[float, float]:
    """The same with tensors from elsewhere, which are copied first. Reading is as ours."""
    with Store(folder, budget=4 * data.nbytes) as store:
        store.write("warm", data)
        store.flush()
        start = time.perf_counter()
        for i in range(files):
            store.write(f"t{i}", data)
        store.flush()
        return time.perf_counter() - start, 0.0


def by_hand(folder: Path, data: Tensor, files: int) -> tuple[float, float]:
    """One block after the other, directly, and nothing else: no checksum, no list of files."""
    block = memoryview(mmap.mmap(-1, BLOCK))
    torch.frombuffer(block, dtype=torch.uint8).copy_(data[:BLOCK])
    offsets, seconds = range(0, data.nbytes, BLOCK), []
    for flags, move in (
        (os.O_RDWR | os.O_CREAT, lambda fd, at: os.pwritev(fd, [block], at)),
        (os.O_RDONLY, lambda fd, at: os.preadv(fd, [block], at)),
    ):
        start = time.perf_counter()
        for i in range(files):
            fd = os.open(folder / f"{i}.bin", flags, 0o600)
            direct(fd)
            for at in offsets:
                move(fd, at)
            if flags & os.O_CREAT:
                durable(fd)
            os.close(fd)
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1]


def by_dd(folder: Path, data: Tensor, files: int) -> tuple[float, float]:
    """dd's own loop in its own process, zeros in and out."""
    seconds, count = [], f"count={data.nbytes // BLOCK}"
    for more in (["if=/dev/zero", "of={}", "oflag=direct", "conv=fdatasync"],
                 ["if={}", "of=/dev/null", "iflag=direct"]):  # fmt: skip
        start = time.perf_counter()
        for i in range(files):
            named = [part.format(folder / f"{i}.bin") for part in more]
            command = ["dd", *named, f"bs={BLOCK}", count, "status=none"]
            subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1]


def mapped(folder: Path, data: Tensor, files: int) -> tuple[float, float]:
    """What one would write first: files as memory, and the system may do when it likes."""
    paths = [folder / f"{i}.bin" for i in range(files)]
    start = time.perf_counter()
    for path in paths:
        whole = torch.from_file(str(path), shared=True, size=data.nbytes, dtype=torch.uint8)
        whole.copy_(data)
        fd = os.open(path, os.O_RDWR)
        durable(fd)
        os.close(fd)
    written = time.perf_counter() - start
    del whole
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        forget(fd)
        os.close(fd)
    target = torch.empty_like(data)
    start = time.perf_counter()
    for path in paths:
        target.copy_(torch.from_file(str(path), shared=True, size=data.nbytes, dtype=torch.uint8))
    return written, time.perf_counter() - start


# --- the step -------------------------------------------------------------------------------------


class Timed(StreamingAdam):
    """Beside Adam itself a device that takes some time for each piece, the host idle."""

    pause = 0.0

    def _move(self, state: Tensor, parts: list) -> bool:
        time.sleep(self.pause)
        return super()._move(state, parts)


class OneByOne(Store):
    """Nothing ahead and nothing behind: what overlap is compared with."""

    def prefetch(self, name: str) -> None:
        """Not now."""

    def write(self, name: str, tensor: Tensor, own: bool = False) -> None:
        """And wait until it is on the disk."""
        super().write(name, tensor, own)
        while self._written():
            pass


def stepping(sizes: Sizes, folder: Path, progress: Progress) -> list[Result]:
    """Steps over the longer of computing and moving, streamed and one thing after the other."""
    results, nbytes = [], 12 * sizes.piece
    for i, share in enumerate(sizes.shares):
        for kind, who in ((Store, OURS), (OneByOne, "one after the other")):
            progress(0.3 + 0.15 * i / len(sizes.shares), 1.0, f"steps, {share:g} of the I/O: {who}")
            weight = nn.Parameter(torch.zeros(sizes.piece * sizes.pieces))
            weight.grad = torch.ones_like(weight)
            samples = []
            with kind(folder / "states", budget=6 * nbytes, rate=sizes.rate) as store:
                adam = Timed([weight], store, piece=sizes.piece)
                moving = nbytes / sizes.rate
                adam.pause = share * moving
                for _ in range(sizes.steps if who == OURS else 1):
                    start = time.perf_counter()
                    adam.step()
                    seconds = time.perf_counter() - start
                    samples.append(seconds / (sizes.pieces * moving * max(1.0, share)))
            shutil.rmtree(folder / "states")
            results.append(Result.of(f"computing {share:g} of moving", who, "1", samples))
    return results


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
    base = [sys.executable, "-m", "weft.run.offload_train", "--json", "--text", str(text)]
    ways = {
        OURS: ["--budget", str(sizes.budget), "--folder", str(folder)],
        "in memory": ["--in-memory"],
    }
    results, losses = [], {}
    for i, (who, more) in enumerate(ways.items()):
        progress(0.5 + 0.25 * i, 1.0, f"training, {who}")
        done = subprocess.run([*base, *sizes.training, *more], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"training failed: {done.stderr.strip().splitlines()[-1]}")
        found = json.loads(done.stdout)
        losses[who] = found.pop("losses")
        steps = len(losses[who])
        results.append(Result.of("loss, step by step", who, "nat", losses[who]))
        results.append(Result.of("step", who, "s", found.pop("seconds")))
        for what in ("read", "written"):
            found[f"{what} in a step"] = found.pop(what) / steps
        results += [Result.of(what, who, "B", [value]) for what, value in found.items()]
    apart = [abs(a - b) for a, b in zip(*losses.values(), strict=True)]
    results.append(Result.of("losses apart", "both", "nat", apart))
    results.append(Result.of("budget", OURS, "B", [sizes.budget * MIB]))
    return results
