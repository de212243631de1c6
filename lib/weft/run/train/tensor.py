"""Train a decoder whose matrices lie over ranks: `weft run tensor`.

Every rank is given every batch whole, and has its part of each matrix; under sequence parallelism
it has its part of the tokens between them, too. Gradients come whole out of backward, each for what
its rank keeps, so nothing is left to sum: the losses are those of one process.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from weft.plan.arguments import sizes
from weft.plan.shape import ModelShape
from weft.plan.tensor import sent, sent_ends, sent_norms
from weft.run.collectives import all_reduce
from weft.run.tensor import cross_entropy, parallelize
from weft.run.train.options import tensor_parser
from weft.run.train.training import Training, command, compare, learn, on_ranks, shared
from weft.run.world import World


@dataclass(frozen=True)
class TensorTraining(Training):
    """A training whose matrices lie over `ranks` ranks."""

    sequence_parallel: bool = False
    overlap: bool = False
    ranks: int = 4

    def sent(self) -> float:
        """Bytes that a rank sends in a step, on average over the ranks, in fp32."""
        config, t = self.config, self.ranks
        shape = ModelShape(config.layers, config.width, config.heads, config.vocab, config.seq)
        total = config.layers * sent(shape, self.batch, t, self.sequence_parallel, size=4)
        total += sent_ends(shape, self.batch, t, size=4)
        if self.sequence_parallel:  # and the head's norm is half of a layer's two
            total += (config.layers + 0.5) * sent_norms(shape, t, size=4)
        return total


def train(world: World, training: TensorTraining, text: bytes) -> list[float]:
    """One rank's part: the loss of every step, nats per byte, the same on every rank.

    Rank 0 prints them, how fast it was, and what ranks sent beside what the plan says.
    """
    torch.manual_seed(training.seed)
    whole = training.model().to(world.device)
    model = parallelize(whole, world, training.sequence_parallel, training.overlap)

    def part(tokens_BT: Tensor, following_BT: Tensor) -> Tensor:
        mean = cross_entropy(model(tokens_BT), following_BT, world)
        mean.backward()
        return mean

    alone = world.grid(d=1, t=world.size).axis("d")  # nobody else has other data
    losses, sent_bytes = learn(world, training, text, model, part, data=alone)
    # Where the numbers do not divide by t, some ranks send one more: the mean is the plan's.
    mean = all_reduce(torch.tensor(sent_bytes, dtype=torch.float64), world, "mean").item()
    compare(world, "sent by a rank in a step", round(training.sent()), round(mean))
    return losses


# --- the command ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """`weft run tensor …`: train, print losses as they come, and what the ranks sent."""
    return command(argv, tensor_parser(), _training, partial(on_ranks, train), lambda *_: None)


def _training(options: argparse.Namespace) -> TensorTraining:
    """What the options ask for; whatever is wrong with them comes out before a rank starts."""
    (t,) = sizes(**{"--t": options.ranks})
    given = shared(options)
    along = options.sequence_parallel or options.overlap
    if options.heads < t:
        raise ValueError(f"--heads is {options.heads}, must be at least --t = {t}: one each")
    if along and options.seq % t:
        raise ValueError(
            f"--seq is {options.seq}, must be a multiple of --t = {t}: equal parts of the tokens"
        )
    return TensorTraining(**given, sequence_parallel=along, overlap=options.overlap, ranks=t)


if __name__ == "__main__":
    sys.exit(main())
