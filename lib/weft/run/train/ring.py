"""Train a decoder whose sequences lie over ranks, with attention over the whole: `weft run ring`.

Every rank has the whole model and its tokens of every sequence, which know their positions in it.
Attention is the one place where tokens meet; the gradients of the weights are summed at the end of
a step. So the losses are those of one process that has the whole sequences.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from weft.nn.transformer import Config, loss, stages
from weft.plan.arguments import sizes
from weft.plan.ring import positions, sent
from weft.run.ring import attention, shard
from weft.run.train.options import ring_parser
from weft.run.train.training import Training, command, compare, learn, on_ranks, shared
from weft.run.world import World


@dataclass(frozen=True)
class RingTraining(Training):
    """A training whose sequences of `config.seq` bytes lie over `ranks` ranks in some layout."""

    layout: str = "zigzag"
    method: str = "ring"
    ranks: int = 4

    def sent(self, rank: int) -> int:
        """Bytes of keys, values and their gradients, or what else a method sends in a step."""
        H = self.config.heads
        form = self.config.seq, self.ranks, H, H, self.config.width // H, self.method, 4
        how = {"B": self.batch, "layout": self.layout, "rank": rank}
        return self.config.layers * sum(sent(*form, back, **how) for back in (False, True))


def stages_on(
    world: World,
    config: Config,
    count: int | Sequence[int] = 1,
    layout: str = "zigzag",
    method: str = "ring",
) -> list[nn.Sequential]:
    """weft.nn.transformer's stages of a decoder that is given this rank's tokens of a sequence.

    `world` are the ranks that share a sequence: all of them, or an axis of a grid. Every rank of
    it makes the same weights if torch's generator stands the same.
    """
    places = positions(config.seq, world.size, layout)[world.rank]
    how = {"world": world, "causal": True, "layout": layout, "method": method}
    return stages(config, count, partial(attention, **how), places)


def train(world: World, training: RingTraining, text: bytes) -> list[float]:
    """One rank's part: the loss of every step, nats per byte, the mean over all ranks' bytes.

    Rank 0 prints them, how fast it was, and what it sent for attention beside what the plan says.
    """
    torch.manual_seed(training.seed)
    (model,) = stages_on(world, training.config, 1, training.layout, training.method)
    model.to(world.device)

    def part(*batch: Tensor) -> Tensor:
        # What follows a token was put beside it before the sequence was cut: no border is special.
        tokens_BT, following_BT = (shard(x, world, training.layout) for x in batch)
        share = tokens_BT.shape[1] / training.config.seq
        mine = share * loss(model(tokens_BT), following_BT)
        mine.backward()
        return mine

    losses, sent_bytes = learn(world, training, text, model, part)
    what = "sent by rank 0 for attention in a step"
    compare(world, what, training.sent(0), sent_bytes)
    return losses


# --- the command ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """`weft run ring …`: train, print losses as they come, and what the ranks sent."""
    return command(argv, ring_parser(), _training, partial(on_ranks, train), lambda *_: None)


def _training(options: argparse.Namespace) -> RingTraining:
    """What the options ask for; whatever is wrong with them comes out before a rank starts."""
    (ranks,) = sizes(**{"--n": options.ranks})
    given = shared(options)
    if options.seq < ranks:
        raise ValueError(f"--seq is {options.seq}, must be at least --n = {ranks}: a byte each")
    if options.method == "ulysses" and options.heads % ranks:
        raise ValueError(f"--heads is {options.heads}, must be a multiple of --n = {ranks}")
    return RingTraining(**given, layout=options.layout, method=options.method, ranks=ranks)
