"""Train a decoder whose experts lie over ranks, and watch who is chosen: `weft run experts`.

Every rank has sequences of its own, all weights but the experts', and its part of these. Tokens
travel to the experts that are chosen for them. Where nothing is dropped, the losses are those of
one process that has all experts and all sequences.
"""

import argparse
import io
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.nn.experts import balance, decoder
from weft.nn.transformer import loss
from weft.plan.arguments import amounts, sizes
from weft.plan.experts import capacity, sent_by
from weft.run.experts import ExpertParallel, parallelize, steer
from weft.run.train.options import experts_parser
from weft.run.train.training import Training, command, compare, learn, on_ranks, shared
from weft.run.world import World


@dataclass(frozen=True)
class ExpertsTraining(Training):
    """A training of a decoder with `experts` in every second block, `k` of them for a token.

    They lie over `ranks` ranks, which share the sequences of a batch. `balance` weighs the
    balance loss of each layer, `bias` is the step of a bias that balances without one.
    """

    experts: int = 8
    k: int = 1
    factor: float | None = None
    balance: float = 0.01
    bias: float = 0.0
    ranks: int = 4

    def model(self) -> nn.Sequential:
        """The whole decoder."""
        return decoder(self.config, self.experts, self.k, self.factor)


class ExpertsOutcome(NamedTuple):
    """Losses in nats per byte, and of each step and layer [steps, layers]: choices and drops.

    Choices are how many each expert was given by all ranks' tokens; drops how many of them found
    it full. The balance loss is not in the losses.
    """

    losses: list[float]
    choices: list[list[list[int]]]
    dropped: list[list[int]]


def train(world: World, training: ExpertsTraining, text: bytes) -> ExpertsOutcome:
    """One rank's part. Rank 0 prints losses, balance, and what it sent beside what the plan says.

    `world` are the ranks over which experts and sequences lie: all of them, or an axis of a grid.
    """
    torch.manual_seed(training.seed)
    model = parallelize(training.model().to(world.device), world)
    layers = [layer for layer in model.modules() if isinstance(layer, ExpertParallel)]
    outcome = ExpertsOutcome([], [], [])

    def part(*batch: Tensor) -> Tensor:
        tokens_BT, following_BT = (x.tensor_split(world.size)[world.rank] for x in batch)
        share = len(tokens_BT) / training.batch
        mine = share * loss(model(tokens_BT), following_BT)
        even = share * sum(balance(layer.routed) for layer in layers)
        (mine + training.balance * even).backward()
        if training.bias:
            steer(model, training.bias)
        outcome.choices.append([layer.routed.choices.tolist() for layer in layers])
        kept = [layer.kept.sum().item() for layer in layers]
        pairs = zip(outcome.choices[-1], kept, strict=True)
        outcome.dropped.append([sum(choices) - most for choices, most in pairs])
        return mine

    losses, sent_bytes = learn(world, training, text, model, part, partial(_balance, outcome))
    width = training.config.width
    size = layers[0].up.element_size()
    rows = (sent_by(world.rank, layer.kept.tolist(), width, size) for layer in layers)
    compare(world, "tokens sent by rank 0 in a step", 2 * sum(rows), sent_bytes)
    return outcome._replace(losses=losses)


def _balance(outcome: ExpertsOutcome) -> str:
    """The last step's balance in words: the fullest expert of all layers, and how many are idle."""
    choices = outcome.choices[-1]
    fullest = max(max(counts) / sum(counts) for counts in choices)
    idle = sum(counts.count(0) for counts in choices)
    dropped = sum(outcome.dropped[-1]) / sum(map(sum, choices))
    told = f"  fullest expert {fullest:.0%} of tokens, {idle} of {sum(map(len, choices))} idle"
    return told + (f", {dropped:.0%} dropped" if dropped else "")


# --- the command ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """`weft run experts …`: train, print losses and balance as they come, and what was sent."""
    return command(argv, experts_parser(), _training, _run, _show)


def _run(training: ExpertsTraining, text: bytes, options: argparse.Namespace) -> ExpertsOutcome:
    with redirect_stdout(io.StringIO()) if options.json else nullcontext():
        return on_ranks(train, training, text, options)


def _training(options: argparse.Namespace) -> ExpertsTraining:
    """What the options ask for; whatever is wrong with them comes out before a rank starts."""
    counts = {"--e": options.ranks, "--experts": options.experts, "--k": options.k}
    ranks, experts, k = sizes(**counts)
    weight, step = amounts(**{"--balance": options.balance, "--bias": options.bias})
    given = shared(options)
    capacity(0, experts, options.factor or 1.0, k)  # refuses what does not fit
    if options.batch < ranks:
        raise ValueError(f"--batch is {options.batch}, must be at least --e = {ranks}: one each")
    if options.layers < 2:
        raise ValueError(f"--layers is {options.layers}, must be at least 2: the 2nd has experts")
    more = {"factor": options.factor, "balance": weight, "bias": step, "ranks": ranks}
    return ExpertsTraining(**given, experts=experts, k=k, **more)


def _show(outcome: ExpertsOutcome, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(outcome._asdict()))
        return
    for i, counts in enumerate(outcome.choices[-1]):
        print(f"block {2 * i + 2}: {' '.join(map(str, counts))} tokens for each expert, last step")


if __name__ == "__main__":
    sys.exit(main())
