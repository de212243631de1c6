"""Train the small byte-level decoder under a layout of several axes: `weft run composing`.

The same command runs on its own, where it starts the ranks itself, and under torchrun, where it
is one of them, on one node or more. Whatever the layout, losses are those of one process.
"""

import argparse
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

from weft.meter import traffic
from weft.nn.experts import ExpertsConfig
from weft.plan.arguments import amount
from weft.plan.composing import Layout
from weft.plan.simulate import Timeline, simulate
from weft.plan.units import quantity
from weft.run.collectives import all_reduce
from weft.run.composing import Trainer, microbatches
from weft.run.pipeline import Cpu, GivenCosts, Wall, durations
from weft.run.train.options import CLOCK_NAMES, composing_parser
from weft.run.train.training import Training, command, on_ranks, shared
from weft.run.world import World
from weft.run.zero.checkpoint import exists

Picture = Callable[[Timeline], str]
CLOCKS = dict(zip(CLOCK_NAMES, (Wall, Cpu, GivenCosts), strict=True))
AXES = tuple(field.name for field in fields(Layout))


@dataclass(frozen=True, kw_only=True)
class ComposingTraining(Training):
    """A training under a layout; the optimizer is AdamW.

    `max_norm` is how long a gradient may be. With a `folder` it goes on from the checkpoint there,
    if there is one, and leaves one at the end. `clock` is one of CLOCKS.
    """

    layout: Layout
    max_norm: float | None = None
    folder: Path | None = None
    clock: str = "wall"

    @property
    def ranks(self) -> int:
        return self.layout.devices


class ComposingOutcome(NamedTuple):
    """The step that it began with, losses from there, and rank 0's view of the last step."""

    done: int
    losses: list[float]
    timeline: Timeline | None


def train(world: World, training: ComposingTraining, text: bytes) -> ComposingOutcome:
    """One rank's part: the loss of every step, nats per byte, the same on every rank.

    Rank 0 prints them, how fast it was, and what ranks sent.
    """
    optimizer = partial(torch.optim.AdamW, lr=training.rate)
    how = training.seed, torch.get_default_dtype(), training.max_norm, CLOCKS[training.clock]()
    trainer = Trainer(training.config, training.layout, optimizer, world, *how)
    if training.folder and exists(training.folder):
        trainer.load(training.folder)
    done, losses, seconds = trainer.steps, [], []
    for step, batch in islice(enumerate(training.batches(text)), done, None):
        start = time.perf_counter()
        with traffic() as wire:
            losses.append(trainer.step(batch).item())
        seconds.append(time.perf_counter() - start)
        if world.rank == 0:
            training.report(step, losses[-1])
    if losses:
        if training.folder:
            trainer.save(training.folder)
        sent = torch.tensor(sum(wire.bytes.values()), dtype=torch.float64)
        mean = all_reduce(sent, world, "mean").item()
        if world.rank == 0:
            print(training.pace(seconds), flush=True)
            print(f"sent in a step by a rank, on average: {round(mean):,} bytes", flush=True)
    return ComposingOutcome(done, losses, trainer.timeline)


# --- the command ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None, picture: Picture | None = None) -> int:
    """`weft run composing …`: train, print losses as they come, show the last step.

    `picture` is what draws it, `weft.draw.pipeline.text` on the command line.
    """
    run, show = partial(on_ranks, train), partial(_show, picture=picture)
    return command(argv, composing_parser(), _training, run, show)


def _training(options: argparse.Namespace) -> ComposingTraining:
    """What the options ask for; whatever is wrong with them comes out before a rank starts."""
    given = shared(options)
    with _by_options():
        layout = Layout(**{name: getattr(options, name) for name in AXES})
        if options.clip is not None:
            amount("clip", options.clip, above=True)
        if options.experts:
            sizes = vars(given["config"])
            given["config"] = ExpertsConfig(**sizes, experts=options.experts, k=options.k)
        microbatches(given["config"], layout, options.batch, options.seq)
    more = {"max_norm": options.clip, "folder": options.checkpoint, "clock": options.clock}
    return ComposingTraining(**given, layout=layout, **more)


@contextmanager
def _by_options() -> Iterator[None]:
    """A wrong argument is called by its option's name, as it was given."""
    try:
        yield
    except ValueError as error:
        words = re.sub(r"^[a-z_]+(?= is )", lambda found: f"--{found[0]}", str(error))
        raise ValueError(words.replace("_", "-") if words.startswith("--") else words) from None


def _show(outcome: ComposingOutcome, options: argparse.Namespace, picture: Picture | None) -> None:
    done, losses, measured = outcome
    if done:
        more = "" if losses else f": --steps {options.steps} counts them, too; give more to go on"
        print(f"{options.checkpoint} had {done} steps, {len(losses)} were left{more}")
    if measured is None:
        return
    predicted = simulate(measured.plan, **durations(measured))
    for name, timeline in (("predicted", predicted), ("measured", measured)):
        step = quantity(timeline.makespan, "s")
        print(f"{name}: {step} from first to last, idle {timeline.bubble:.3f} of the time")
        if picture:
            print(picture(timeline))
