"""What the trainings share: a decoder and its batches, their options, and the command."""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import islice
from math import ceil, prod
from statistics import median
from typing import Any, TextIO

import torch
from torch import Tensor, nn

from weft.meter import traffic
from weft.nn.transformer import Config, stages
from weft.plan.arguments import sizes
from weft.plan.units import quantity
from weft.run.collectives import all_reduce
from weft.run.experts import reduce_gradients
from weft.run.train.options import BATCH, RATE, SEED, STEPS
from weft.run.train.text import read_text, windows
from weft.run.world import World, launch

LINES = 20  # how many losses are printed at most


@dataclass(frozen=True)
class Training:
    """A decoder, and `steps` steps on `batch` windows of `config.seq` bytes from a text.

    `rate` is Adam's learning rate; `seed` decides the first weights and all windows.
    """

    config: Config
    steps: int = STEPS
    batch: int = BATCH
    rate: float = RATE
    seed: int = SEED

    @property
    def ranks(self) -> int:
        """How many processes train."""
        return 1

    @property
    def shape(self) -> tuple[int, ...]:
        """How many windows a step takes in all, dim by dim."""
        return (self.batch,)

    def batches(self, text: bytes) -> Iterator[tuple[Tensor, Tensor]]:
        """For each step bytes and the bytes that follow, [*shape, T] each; the same on every rank.

        Raises ValueError where the text is shorter than one window.
        """
        for window in islice(windows(text, self.config.seq, self.shape, self.seed), self.steps):
            yield window[..., :-1], window[..., 1:]

    @property
    def tokens(self) -> int:
        """How many tokens, which are bytes of the text, a step learns from."""
        return prod(self.shape) * self.config.seq

    def model(self) -> nn.Module:
        """The decoder, with the weights that torch's generator gives."""
        return stages(self.config, 1)[0]

    def about(self) -> str:
        """What is trained, by whom, in a line."""
        with torch.device("meta"):
            params = sum(weight.numel() for weight in self.model().parameters())
        blocks = f"{self.config.layers} block{'s' if self.config.layers > 1 else ''}"
        by = f"{self.ranks} process{'es' if self.ranks > 1 else ''}"
        return (
            f"{params:,} parameters in {blocks} of width {self.config.width}, "
            f"{by}, {self.steps} steps of {self.tokens:,} tokens"
        )

    def pace(self, seconds: Sequence[float]) -> str:
        """How fast it went, in a line: the median of the steps, the first of several apart."""
        steady = seconds[1:] or seconds
        step = median(steady)
        first = f"; the first took {quantity(seconds[0], 's')}" if seconds[1:] else ""
        return f"{quantity(step, 's')} a step, {self.tokens / step:,.0f} tokens per second{first}"

    def report(self, step: int, loss: float, also: str = "") -> None:
        """Print a step's loss, if the step is one of at most LINES, evenly spaced, or the last."""
        every = max(1, ceil((self.steps - 1) / (LINES - 1)))
        if step % every == 0 or step == self.steps - 1:
            digits = len(str(self.steps))
            print(f"step {step:{digits}}  loss {loss:.4f} nats per byte{also}", flush=True)


def learn(
    world: World,
    training: Training,
    text: bytes,
    model: nn.Module,
    part: Callable[[Tensor, Tensor], Tensor],
    also: Callable[[], str] = str,
    data: World | None = None,
) -> tuple[list[float], int]:
    """One rank's steps on its parts of all batches: every step's loss, and bytes sent in the last.

    `part(tokens, following)` runs forward and backward on this rank's part of a whole batch, and
    returns what the part adds to the mean loss of all bytes. So gradients are summed over ranks,
    and losses are those of one process. Rank 0 prints them, with what `also` says of the step.
    Bytes are those that `part` sends. `data` are the ranks whose parts differ: all, if None.
    """
    data = data or world
    optimizer = torch.optim.Adam(model.parameters(), lr=training.rate)
    losses, seconds = [], []
    for step, batch in enumerate(training.batches(text)):
        start = time.perf_counter()
        with traffic() as wire:
            mine = part(*(tokens.to(world.device) for tokens in batch))
        reduce_gradients(model, data, op="sum")
        optimizer.step()
        optimizer.zero_grad()
        losses.append(all_reduce(mine.detach().double(), data).item())
        seconds.append(time.perf_counter() - start)
        if world.rank == 0:
            training.report(step, losses[-1], also())
    if world.rank == 0:
        print(training.pace(seconds), flush=True)
    return losses, sum(wire.bytes.values())


def compare(world: World, what: str, planned: float, measured: int) -> None:
    """Rank 0 prints what it has sent in a step, beside what the plan says."""
    if world.rank == 0:
        print(f"{what}: predicted {planned:,} bytes, measured {measured:,}", flush=True)


# --- the command ----------------------------------------------------------------------------------


def shared(options: argparse.Namespace) -> dict[str, Any]:
    """What the options say of the fields that every Training has."""
    sizes(**{"--steps": options.steps, "--batch": options.batch})
    config = Config(options.layers, options.width, options.heads, seq=options.seq)
    return {"config": config} | {k: getattr(options, k) for k in ("steps", "batch", "rate", "seed")}


def command(
    argv: Sequence[str] | None,
    parser: argparse.ArgumentParser,
    given: Callable[[argparse.Namespace], Training],
    run: Callable[[Training, bytes, argparse.Namespace], Any],
    show: Callable[[Any, argparse.Namespace], None],
) -> int:
    """A training's `main`: parse, check all that can be checked, run, show what came of it.

    `given` makes a Training of the options. `run` does it and prints losses as they come. `show`
    prints the rest. Under torchrun, which calls this once for each rank, only rank 0 prints.
    """
    options = parser.parse_args(argv)
    training, text = given(options), read_text(options.text)
    next(training.batches(text))  # a text that is too short is better found out here
    first = int(os.environ.get("RANK", 0)) == 0
    if first and not getattr(options, "json", False):
        print(training.about(), flush=True)
    outcome = run(training, text, options)
    if first:
        show(outcome, options)
    return 0


def on_ranks(train: Callable, training: Training, text: bytes, options: argparse.Namespace) -> Any:
    """What rank 0 returns of `train(world, training, text)`, called on all of the ranks.

    Rank 0 reports its losses; they are shown without the mark that `launch` puts before a line.
    """
    with redirect_stdout(_Unmarked(sys.stdout)):
        return launch(train, training.ranks, training, text, timeout=options.timeout)[0]


class _Unmarked:
    """A stream whose lines lose the mark of rank 0."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r"^\[0\] ", "", text, flags=re.MULTILINE))

    def flush(self) -> None:
        self._stream.flush()
