"""Who is chosen while the small decoder learns: with no balance, with a loss, and with a bias.

It is the training of `weft run experts` on the book's text, three times from the same weights and
the same batches. Nothing is timed.
"""

import json
import subprocess
import sys
from typing import Any, NamedTuple

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement

WAYS = {  # options of the training
    "no balance": ("--balance=0",),
    "loss, 0.01": ("--balance=0.01",),
    "bias, 0.01": ("--balance=0", "--bias=0.01"),
}


class BalanceSizes(NamedTuple):
    """The model, how long it learns, and over how many steps choices are counted together."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    seq: int = 64
    batch: int = 8
    experts: int = 8
    steps: int = 240
    window: int = 20


FULL = BalanceSizes()


def balanced(run: BenchRun, sizes: BalanceSizes = FULL) -> Found:
    """Each expert's share of the tokens, the fullest one's, how many are idle, and the loss.

    A sample is a window of steps; they are in order.
    """
    results = []
    for way in run.each(WAYS):
        outcome = _trained(sizes, WAYS[way])
        shares = [_shares(outcome, begin, sizes) for begin in range(0, sizes.steps, sizes.window)]
        by_expert = zip(*shares, strict=True)
        results += [
            Measurement.of(f"expert {i}", way, "1", taken) for i, taken in enumerate(by_expert)
        ]
        results.append(Measurement.of("the fullest expert", way, "1", [max(s) for s in shares]))
        results.append(Measurement.of("idle experts", way, "1", [s.count(0.0) for s in shares]))
        losses = [
            sum(outcome["losses"][begin : begin + sizes.window]) / sizes.window
            for begin in range(0, sizes.steps, sizes.window)
        ]
        results.append(Measurement.of("loss", way, "nat", losses))
    tokens = sizes.batch * sizes.seq
    title = (
        f"Shares of {sizes.experts} experts in one layer of the small decoder on the book's text: "
        f"{sizes.steps} steps of {tokens} tokens, k = 1, each sample {sizes.window} steps"
    )
    return title, results


BALANCE = BenchJob("experts-balance", balanced)


def _trained(sizes: BalanceSizes, way: tuple[str, ...]) -> dict[str, Any]:
    """One training: its losses and choices."""
    given = {name: size for name, size in sizes._asdict().items() if name != "window"}
    arguments = ["--e=1", "--json", *(f"--{name}={size}" for name, size in given.items()), *way]
    command = [sys.executable, "-m", "weft.run.train.experts", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RuntimeError(f"a training failed: {last}")
    return json.loads(done.stdout)


def _shares(outcome: dict[str, Any], begin: int, sizes: BalanceSizes) -> list[float]:
    """Of the choices of some steps in a row, each expert's share."""
    rows = [layers[0] for layers in outcome["choices"][begin : begin + sizes.window]]
    counts = [sum(given) for given in zip(*rows, strict=True)]
    return [count / sum(counts) for count in counts]
