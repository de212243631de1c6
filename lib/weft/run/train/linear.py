"""Train a decoder with linear attention, each sequence in parts over ranks: `weft run linear`.

Every rank has the whole model and its part of every sequence. In each block a state travels from
rank to rank, and back as a gradient; the gradients of the weights are summed at the end of a step.
So the losses are those of one process that has the whole sequences.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from weft.meter import traffic
from weft.nn.linear import LinearMixer, MixerDecoder
from weft.nn.transformer import loss
from weft.plan.arguments import sizes
from weft.plan.linear import DECODER_RULES, sent
from weft.run.collectives import all_reduce
from weft.run.linear import attention
from weft.run.train.options import linear_parser
from weft.run.train.training import Training, command, on_ranks, shared, sum_gradients
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
    optimizer = torch.optim.Adam(model.parameters(), lr=training.rate)
    parts = torch.arange(training.config.seq).tensor_split(world.size)
    here = slice(parts[world.rank][0].item(), parts[world.rank][-1].item() + 1)
    share = len(parts[world.rank]) / training.config.seq
    losses, seconds = [], []
    for step, batch in enumerate(training.batches(text)):
        tokens_BT, following_BT = (whole_BT[:, here].to(world.device) for whole_BT in batch)
        start = time.perf_counter()
        with traffic() as wire:
            mine = share * loss(model(tokens_BT, here.start), following_BT)
            mine.backward()
        sum_gradients(model, world)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(all_reduce(mine.detach().double(), world).item())
        seconds.append(time.perf_counter() - start)
        if world.rank == 0:
            training.report(step, losses[-1])
    if world.rank == 0:
        print(training.pace(seconds), flush=True)
        told = f"predicted {training.sent(0):,} bytes, measured {sum(wire.bytes.values()):,}"
        print(f"states sent by rank 0 in a step: {told}", flush=True)
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
