"""How many pairs a state recalls: one layer with each mixer learns to look up keys.

A sequence has pairs of a key and a value, one pair a token, and then asks for all of the keys in
another order. Only the mixing layer reaches back, so accuracy is what its state has kept. In one
task some keys come twice, and the last value counts. Nothing says which token came when: softmax,
which sees all of them alike, cannot tell the last value from the first. Nothing is timed.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.nn.linear import LinearMixer, MixerBlock, SoftmaxMixer
from weft.nn.transformer import Config

MIXERS = {"softmax": SoftmaxMixer}
MIXERS |= {rule: partial(LinearMixer, rule=rule) for rule in ("linear", "decay", "gate", "delta")}


class RecallTask(NamedTuple):
    """How many pairs, how many of their keys come twice, and the width of the mixer's keys."""

    pairs: int
    key_width: int
    twice: int = 0

    def __str__(self) -> str:
        twice = f", {self.twice} of them twice" if self.twice else ""
        return f"{self.pairs} pairs{twice}, K = {self.key_width}"


class RecallSizes(NamedTuple):
    """The model's width, how many keys and values there are, and how it is trained."""

    tasks: tuple[RecallTask, ...]
    width: int = 64
    keys: int = 40
    values: int = 8
    batch: int = 32
    steps: int = 200
    every: int = 50  # steps between two points of a curve
    rate: float = 1.5e-2
    seeds: int = 3
    tested: int = 256  # sequences


PAIRS = tuple(RecallTask(pairs, 8) for pairs in (8, 16, 32))
WIDTHS = tuple(RecallTask(32, key_width) for key_width in (16, 32))
FULL = RecallSizes((*PAIRS, *WIDTHS, RecallTask(16, 16, twice=8)))


def recalled(run: BenchRun, sizes: RecallSizes = FULL) -> Found:
    """The accuracy of each mixer at points of its training, and the bytes of its state at the end.

    A sample is a seed, of weights and batches; accuracy is that on sequences of another seed.
    """
    results = []
    for task, name in run.each(product(sizes.tasks, MIXERS), "{0[0]}: {0[1]}"):
        seeds = [list(_curve(name, task, sizes, seed)) for seed in range(sizes.seeds)]
        for points in zip(*seeds, strict=True):
            (step,) = {step for step, _ in points}
            accuracies = [accuracy for _, accuracy in points]
            results.append(Measurement.of(f"{task}, step {step}", name, "1", accuracies))
        results.append(
            Measurement.of(f"{task}, state", name, "B", [state_bytes(name, task, sizes)])
        )
    title = (
        f"Pairs recalled by one layer of width {sizes.width}, one head, after so many steps of "
        f"{sizes.batch} sequences: {sizes.keys} keys, {sizes.values} values"
    )
    return title, results


RECALL = BenchJob("linear-recall", recalled)


class Recaller(nn.Module):
    """Scores for the value that belongs to each token's key, [B, T, values]."""

    def __init__(self, name: str, task: RecallTask, sizes: RecallSizes):
        super().__init__()
        config = Config(layers=1, width=sizes.width, heads=1, hidden=sizes.width)
        self.keys = nn.Embedding(sizes.keys, sizes.width)
        self.values = nn.Embedding(sizes.values + 1, sizes.width)  # the last one asks
        self.block = MixerBlock(config, MIXERS[name](config, key_width=task.key_width))
        self.head = nn.Sequential(nn.LayerNorm(sizes.width), nn.Linear(sizes.width, sizes.values))

    def forward(self, keys_BT: Tensor, values_BT: Tensor) -> tuple[Tensor, object]:
        """The scores, and the state after the last token."""
        x_BTD, state = self.block(self.keys(keys_BT) + self.values(values_BT))
        return self.head(x_BTD), state


def sequences(
    task: RecallTask, sizes: RecallSizes, count: int, dice: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values of all tokens, [B, T], and what is to be said of the last `pairs` of them."""
    B, P = count, task.pairs
    keys = torch.rand(B, sizes.keys, generator=dice).argsort(1)[:, :P]
    values = torch.randint(sizes.values, (B, P), generator=dice)
    again = torch.randint(sizes.values, (B, task.twice), generator=dice)
    last = torch.cat([again, values[:, task.twice :]], 1)
    order = torch.rand(B, P, generator=dice).argsort(1)
    asks = torch.full((B, P), sizes.values)
    all_keys = torch.cat([keys, keys[:, : task.twice], keys.gather(1, order)], 1)
    return all_keys, torch.cat([values, again, asks], 1), last.gather(1, order)


def _curve(
    name: str, task: RecallTask, sizes: RecallSizes, seed: int
) -> Iterator[tuple[int, float]]:
    """Train; the accuracy every so many steps."""
    torch.manual_seed(seed)
    model, dice = Recaller(name, task, sizes), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=sizes.rate)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, sizes.rate, total_steps=sizes.steps)
    tests = sequences(task, sizes, sizes.tested, torch.Generator().manual_seed(sizes.seeds))
    for step in range(1, sizes.steps + 1):
        keys, values, wanted = sequences(task, sizes, sizes.batch, dice)
        scores = model(keys, values)[0][:, -task.pairs :]
        cross_entropy(scores.flatten(0, 1), wanted.flatten()).backward()
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
        if step % sizes.every == 0:
            yield step, _accuracy(model, *tests)


@torch.no_grad()
def _accuracy(model: Recaller, keys: Tensor, values: Tensor, wanted: Tensor) -> float:
    said = model(keys, values)[0][:, -wanted.shape[1] :].argmax(-1)
    return (said == wanted).double().mean().item()


@torch.no_grad()
def state_bytes(name: str, task: RecallTask, sizes: RecallSizes) -> int:
    """Bytes that a sequence's state takes when it asks its first question."""
    model = Recaller(name, task, sizes)
    keys, values, _ = sequences(task, sizes, 1, torch.Generator())
    _, state = model(keys[:, : -task.pairs], values[:, : -task.pairs])
    return sum(x.nbytes for x in (state if isinstance(state, tuple) else (state,)))
