"""The same training twice, its states on a disk and in memory, in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.offload.disk import GIB, MIB, OURS, a_disk
from weft.bench.record import Measurement

OPTIONS = (
    "--layers", "21", "--width", "1024", "--heads", "16", "--batch", "1", "--steps", "4",
    "--rate", "1e-4",
)  # fmt: skip


def training(
    run: BenchRun, options: tuple[str, ...] = OPTIONS, budget: int = 640, room: int = 7 * GIB
) -> Found:
    """Losses, peaks, bytes and seconds of both, under a budget of so many MiB."""
    with a_disk(room) as folder:
        results = _both(run, options, budget, folder)
    return f"A decoder trained under a budget of {budget} MiB, and in memory", results


TRAINING = BenchJob("offload-training", training)


def _both(run: BenchRun, options: tuple[str, ...], budget: int, folder: Path) -> list[Measurement]:
    text = folder / "text"
    text.write_bytes(Path(torch.__file__).read_bytes())  # the same bytes for both, and no others
    ways = {OURS: ["--budget", str(budget), "--folder", str(folder)], "in memory": ["--in-memory"]}
    results, losses = [], {}
    for who in run.each(ways, "training, {}"):
        found = json.loads(trained(["--json", "--text", str(text), *options, *ways[who]]))
        losses[who] = found.pop("losses")
        steps = len(losses[who])
        results.append(Measurement.of("loss, step by step", who, "nat", losses[who]))
        results.append(Measurement.of("step", who, "s", found.pop("seconds")))
        for what in ("read", "written"):
            found[f"{what} in a step"] = found.pop(what) / steps
        results += [Measurement.of(what, who, "B", [n]) for what, n in found.items() if n]
    apart = [abs(a - b) for a, b in zip(*losses.values(), strict=True)]
    results.append(Measurement.of("losses apart", "both", "nat", apart))
    results.append(Measurement.of("budget", OURS, "B", [budget * MIB]))
    return results


def trained(arguments: list[str]) -> str:
    """What `weft run offload` prints in a process of its own, whose memory is that of one run."""
    command = [sys.executable, "-m", "weft.run.train.offload", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"training failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout
