"""Train the small byte-level decoder through a pipeline: `weft run pipeline`.

The same command runs on its own, where it starts the ranks itself, and under torchrun, where it
is one of them: `torchrun --nproc-per-node 4 -m weft run pipeline`.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from weft.nn.transformer import Config, loss, stages
from weft.plan.pipeline import SCHEDULES
from weft.plan.schedule import Plan
from weft.plan.simulate import Timeline
from weft.run.pipeline import Cpu, Pipeline, Unit, Wall
from weft.run.train.aloud import Lines, Report, listening, reporting
from weft.run.train.options import decoder, training_parser
from weft.run.train.text import read_text, windows
from weft.run.world import World, launch

CLOCKS = {"wall": Wall, "cpu": Cpu, "unit": Unit}


@dataclass(frozen=True)
class Training:
    """All that a rank needs to know: the model, the plan, the batches, the optimizer.

    A step takes `microbatches` of `batch` windows of `config.seq` bytes from random places of
    the text; `rate` is AdamW's learning rate.
    """

    config: Config
    plan: Plan
    steps: int = 20
    batch: int = 4
    rate: float = 1e-3
    seed: int = 0
    clock: str = "wall"


def batches(training: Training, text: bytes) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """For each step the m pairs (bytes, the bytes that follow), [B, T] each; the same everywhere.

    Raises ValueError where the text is shorter than one window.
    """
    shape, T = (training.plan.m, training.batch), training.config.seq
    for windows_mBT in islice(windows(text, T, shape, training.seed), training.steps):
        yield [(window[:, :-1], window[:, 1:]) for window in windows_mBT]


def train(
    world: World,
    training: Training,
    text: bytes,
    report: Report | None = None,
) -> tuple[list[float], Timeline]:
    """One rank's part: the loss of every step, nats per byte, and the timeline of the last."""
    torch.manual_seed(training.seed)
    plan = training.plan
    model = stages(training.config, plan.stages)
    mine = [model[stage].to(world.device) for stage in plan.stages_of(world.rank)]
    optimizer = torch.optim.AdamW(
        [weight for stage in mine for weight in stage.parameters()], lr=training.rate
    )
    pipeline = Pipeline(plan, mine, loss, world, CLOCKS[training.clock]())
    losses = []
    for step, microbatches in enumerate(batches(training, text)):
        optimizer.zero_grad()
        mean, timeline = pipeline.step(microbatches)
        optimizer.step()
        losses.append(mean.item())
        if report and world.rank == 0:
            report(step, losses[-1])
    return losses, timeline


# --- the command ----------------------------------------------------------------------------------


def main(
    argv: Sequence[str] | None = None, picture: Callable[[Timeline], str] | None = None
) -> int:
    """`weft run pipeline …`: train, print losses as they come, show the last step if asked.

    `picture` is what draws that step, `weft.draw.pipeline.text` on the command line.
    """
    options = _parser().parse_args(argv)
    training, text = _training(options), read_text(options.text)
    next(batches(training, text))  # a text that is too short is better found out here
    lines = Lines(training.steps)
    with listening(lines) as door:
        arguments = training, text, door
        results = launch(_train_aloud, training.plan.p, *arguments, timeout=options.timeout)
    if not lines.shown:  # one of torchrun's processes, and not the first
        return 0
    timeline = results[0][1]
    if options.timeline and picture:
        print(picture(timeline))
    if options.trace:
        unit = 1e-3 if options.clock == "unit" else 1.0
        options.trace.write_text(json.dumps(timeline.to_perfetto(unit)) + "\n")
        print(f"written: {options.trace}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = training_parser(
        "weft run pipeline", __doc__.splitlines()[0], per="microbatch", layers=8
    )
    add = parser.add_argument
    add("--schedule", choices=sorted(SCHEDULES), default="one_f_one_b", help="(%(default)s)")
    add("--ranks", type=int, default=4, metavar="P", help="(%(default)s)")
    add("--microbatches", type=int, default=8, metavar="M", help="(%(default)s)")
    add("--virtual", type=int, metavar="V", help="stages per rank of interleaved (2)")
    add("--clock", choices=CLOCKS, default="wall", help="what times are measured by (%(default)s)")
    add("--timeline", action="store_true", help="draw the last step as it was measured")
    add("--trace", type=Path, metavar="FILE", help="write the last step for ui.perfetto.dev")
    add("--timeout", type=float, default=3600.0, help="seconds until it is ended (%(default)s)")
    return parser


def _training(options: argparse.Namespace) -> Training:
    """What the options ask for; whatever is wrong with them comes out before a rank starts."""
    for name in ("steps", "batch"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} is {getattr(options, name)}, must be at least 1")
    if options.trace and not options.trace.parent.is_dir():
        raise ValueError(f"--trace is {options.trace}, must be a file in a folder that is there")
    sizes = [options.ranks, options.microbatches]
    if options.virtual is not None:
        if options.schedule != "interleaved":
            raise ValueError(f"--virtual is for interleaved, {options.schedule} takes none")
        sizes.append(options.virtual)
    plan = SCHEDULES[options.schedule](*sizes)
    config = decoder(options)
    if plan.stages > config.layers:
        raise ValueError(
            f"--layers is {config.layers}, must be at least {plan.stages}, "
            f"one block for each of the {plan.v} stages of {plan.p} ranks"
        )
    keys = ("steps", "batch", "rate", "seed", "clock")
    return Training(config, plan, **{key: getattr(options, key) for key in keys})


def _train_aloud(world: World, training: Training, text: bytes, door: str):
    """`train`, with rank 0 reporting every loss at the door."""
    if world.rank:
        return train(world, training, text)
    with reporting(door) as report:
        return train(world, training, text, report)
