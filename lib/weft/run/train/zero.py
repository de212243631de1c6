"""Train the small byte-level decoder under a stage of ZeRO: `weft run zero`.

The same command runs on its own, where it starts the ranks itself, and under torchrun, where it
is one of them: `torchrun --nproc-per-node 2 --max-restarts 3 -m weft run zero --checkpoint FOLDER`.
It goes on from the checkpoint in the folder, if there is one: what a run does that was killed and
started again is, to the bit, what it would have done.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist

from weft.nn.transformer import Config, loss, stages
from weft.plan.arguments import sizes
from weft.plan.zero import checked_stage
from weft.run.train.aloud import Lines, Report, listening, reporting
from weft.run.train.options import decoder, training_parser
from weft.run.train.text import read_text, windows
from weft.run.world import World, launch
from weft.run.zero import BUCKET, Zero
from weft.run.zero.checkpoint import exists, load, save


@dataclass(frozen=True)
class Training:
    """All that a rank needs to know: the model, the stage, the batches, the optimizer.

    A step takes `batch` windows of `config.seq` bytes from each rank; `rate` is AdamW's learning
    rate. With a `folder` a checkpoint is kept there, after every `every` steps and the last.
    """

    config: Config
    stage: int = 2
    ranks: int = 2
    steps: int = 20
    batch: int = 4
    rate: float = 1e-3
    seed: int = 0
    bucket: int = BUCKET
    folder: Path | None = None
    every: int = 10


def train(
    world: World, training: Training, text: bytes, report: Report | None = None
) -> tuple[int, list[float]]:
    """One rank's part: the step that it began with, and the loss of every step from the first.

    The loss is the mean over ranks, nats per byte; the checkpoint has those before.
    """
    torch.manual_seed(training.seed)
    (model,) = stages(training.config, 1)
    optimizer = partial(torch.optim.AdamW, lr=training.rate)
    zero = Zero(model.to(world.device), optimizer, training.stage, world, bucket=training.bucket)
    folder, done, losses = training.folder, 0, []
    if folder and exists(folder):
        done, extra = load(folder, zero)
        losses = extra["losses"]
    shape, T = (world.size, training.batch), training.config.seq
    batches = windows(text, T, shape, training.seed)
    for step, windows_nBT in islice(enumerate(batches), done, training.steps):
        window_BT = windows_nBT[world.rank].to(world.device)
        mine = loss(zero(window_BT[:, :-1]), window_BT[:, 1:])
        mine.backward()
        zero.step()
        zero.zero_grad()
        mean = mine.detach().double() / world.size
        dist.all_reduce(mean, group=world.group())
        losses.append(mean.item())
        if report and world.rank == 0:
            report(step, losses[-1])
        if folder and ((step + 1) % training.every == 0 or step + 1 == training.steps):
            save(folder, zero, step + 1, {"losses": losses})
    return done, losses


# --- the command ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """`weft run zero …`: train, print losses as they come, go on where a checkpoint ends."""
    options = _parser().parse_args(argv)
    training, text = _training(options), read_text(options.text)
    next(windows(text, training.config.seq, (), 0))  # too short a text is better found out here
    lines = Lines(training.steps)
    with listening(lines) as door:
        arguments = training, text, door
        done, losses = launch(_train_aloud, training.ranks, *arguments, timeout=options.timeout)[0]
    if int(os.environ.get("RANK", 0)):  # one of torchrun's processes, and not the first
        return 0
    if done:
        print(f"{training.folder} had {done} steps, {len(losses) - done} were left")
    if training.folder:
        print(f"kept: {training.folder} has {len(losses)} steps")
    return 0


def _train_aloud(world: World, training: Training, text: bytes, door: str):
    """`train`, with rank 0 reporting every loss at the door."""
    if world.rank:
        return train(world, training, text)
    with reporting(door) as report:
        return train(world, training, text, report)


def _parser() -> argparse.ArgumentParser:
    parser = training_parser("weft run zero", __doc__.splitlines()[0], per="rank")
    add = parser.add_argument
    ranks = int(os.environ.get("WORLD_SIZE", 2))  # torchrun's
    add("--stage", type=int, default=2, metavar="S", help="0, 1, 2 or 3 (%(default)s)")
    add("--ranks", type=int, default=ranks, metavar="N", help="(%(default)s)")
    add("--bucket", type=int, default=BUCKET, help="elements sent together (%(default)s)")
    add("--checkpoint", type=Path, metavar="FOLDER", help="keep one there, and go on from it")
    add("--every", type=int, default=10, metavar="K", help="steps between two (%(default)s)")
    add("--timeout", type=float, default=3600.0, help="seconds until it is ended (%(default)s)")
    return parser


def _training(options: argparse.Namespace) -> Training:
    """What the options ask for; whatever is wrong with them comes out before a rank starts."""
    keys = ("ranks", "steps", "batch", "bucket", "every")
    given = dict(zip(keys, sizes(**{f"--{k}": getattr(options, k) for k in keys}), strict=True))
    return Training(
        decoder(options),
        checked_stage(options.stage),
        rate=options.rate,
        seed=options.seed,
        folder=options.checkpoint,
        **given,
    )
