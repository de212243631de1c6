"""Train a decoder with linear attention, each sequence in parts over ranks: `weft run linear`.

Every rank has the whole model and its part of every sequence. In each block a state travels from
rank to rank, and back as a gradient; the gradients of the weights are summed at the end of a step.
So the losses are those of one process that has the whole sequences.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from weft.nn.linear import LinearMixer, MixerDecoder
from weft.nn.transformer import loss
from weft.plan.arguments import sizes
from weft.plan.linear import DECODER_RULES, sent
from weft.run.linear import attention
from weft.run.train.options import linear_parser
from weft.run.train.training import Training, command, compare, learn, on_ranks, shared
from weft.run.world import World


@dataclass(frozen=True)
class LinearTraining(Training):
    """A training whose sequences of `config.seq` bytes lie over `ranks` ranks, one part each."""

    rule: str = "gate"
    method: str = "scan"
    ranks: int = 4

    def model(self, world: World | None = None) -> nn.Module:
        """The decoder; its mixers ask the other ranks of a world for the state before a part."""
        how = {} if world is None else {"form": partial(attention, world=world, method=self.method)}
        return MixerDecoder(self.config, partial(LinearMixer, rule=self.rule, **how))

    def sent(self, rank: int) -> int:
        """Bytes of states and their gradients that a rank sends in a step."""
        K = self.config.width // self.config.heads
        V = K + (self.rule == "linear")  # the normaliser is one more column
        state = self.batch, self.config.heads, K, V, DECODER_RULES[self.rule], self.method
        one = (sent(self.ranks, rank, *state, backward=backward) for backward in (False, True))
        return self.config.layers * sum(one)


def train(world: World, training: LinearTraining, text: bytes) -> list[float]:
    """One rank's part: the loss of every step, nats per byte, the mean over all ranks' bytes.

    Rank 0 prints them, how fast it was, and what it sent of states beside what the plan says.
    """
    torch.manual_seed(training.seed)
    model = training.model(world).to(world.device)
    places = torch.arange(training.config.seq).tensor_split(world.size)[world.rank].tolist()
    here, share = slice(places[0], places[-1] + 1), len(places) / training.config.seq

    def part(tokens_BT: Tensor, following_BT: Tensor) -> Tensor:
        mine = share * loss(model(tokens_BT[:, here], here.start), following_BT[:, here])
        mine.backward()
        return mine

    losses, sent_bytes = learn(world, training, text, model, part)
    compare(world, "states sent by rank 0 in a step", training.sent(0), sent_bytes)
    return losses


# --- the command ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """`weft run linear …`: train, print losses as they come, and what the ranks sent."""
    return command(argv, linear_parser(), _training, partial(on_ranks, train), lambda *_: None)


def _training(options: argparse.Namespace) -> LinearTraining:
    """What the options ask for; whatever is wrong with them comes out before a rank starts."""
    (ranks,) = sizes(**{"--ranks": options.ranks})
    given = shared(options)
    if options.seq < ranks:
        raise ValueError(f"--seq is {options.seq}, must be at least --ranks = {ranks}: a byte each")
    return LinearTraining(**given, rule=options.rule, method=options.method, ranks=ranks)
