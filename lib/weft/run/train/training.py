"""What the trainings share: a decoder and its batches, their options, and the command."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from weft.nn.transformer import Config
from weft.plan.arguments import sizes
from weft.run.train.text import read_text, windows
from weft.run.world import launch

LINES = 20  # how many losses are printed at most


@dataclass(frozen=True)
class Training:
    """A decoder, and `steps` steps on `batch` windows of `config.seq` bytes from a text.

    `rate` is Adam's learning rate; `seed` decides the first weights and all windows.
    """

    config: Config
    steps: int = 20
    batch: int = 4
    rate: float = 1e-3
    seed: int = 0

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

    def report(self, step: int, loss: float) -> None:
        """Print a step's loss, if the step is one of at most LINES, evenly spaced, or the last."""
        every = max(1, ceil((self.steps - 1) / (LINES - 1)))
        if step % every == 0 or step == self.steps - 1:
            digits = len(str(self.steps))
            print(f"step {step:{digits}}  loss {loss:.4f} nats per byte", flush=True)


# --- the command ----------------------------------------------------------------------------------


def training_parser(
    command: str,
    about: str,
    per: str,
    *,
    steps: int = Training.steps,
    batch: int = Training.batch,
    layers: int = 4,
    width: int = 64,
    heads: int = 4,
) -> argparse.ArgumentParser:
    """A parser with the options of all trainings; for what is wrong with them it raises ValueError.

    `per` is whose batch --batch is; the numbers are the defaults of the options of their names.
    """
    parser = argparse.ArgumentParser(prog=command, description=about)
    parser.error = _refuse  # where it would end the process: a notebook may have called
    add = parser.add_argument
    add("--text", type=Path, metavar="FILE", help="what to learn (this book's chapters)")
    add("--steps", type=int, default=steps, metavar="N", help="(%(default)s)")
    add("--batch", type=int, default=batch, metavar="B", help=f"sequences per {per} (%(default)s)")
    add("--seq", type=int, default=64, metavar="T", help="bytes in a sequence (%(default)s)")
    add("--layers", type=int, default=layers, metavar="L", help="(%(default)s)")
    add("--width", type=int, default=width, metavar="D", help="(%(default)s)")
    add("--heads", type=int, default=heads, metavar="H", help="(%(default)s)")
    add("--rate", type=float, default=Training.rate, help="learning rate of Adam (%(default)s)")
    add("--seed", type=int, default=Training.seed, help="(%(default)s)")
    return parser


def add_ranks(parser: argparse.ArgumentParser, ranks: int, metavar: str) -> None:
    """The options of a training on several processes."""
    add = parser.add_argument
    add("--ranks", type=int, default=ranks, metavar=metavar, help="(%(default)s)")
    add("--timeout", type=float, default=3600.0, help="seconds until it is ended (%(default)s)")


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
    prints the rest; under torchrun, which calls this once for each rank, only rank 0 does.
    """
    options = parser.parse_args(argv)
    training, text = given(options), read_text(options.text)
    next(training.batches(text))  # a text that is too short is better found out here
    outcome = run(training, text, options)
    if int(os.environ.get("RANK", 0)) == 0:
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


def _refuse(message: str) -> None:
    raise ValueError(message)
