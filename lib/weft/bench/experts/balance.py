"""Who is chosen while the small decoder learns: with no balance, with a loss, and with a bias.

It is the training of `weft run experts` on the book's text, three times from the same weights and
the same batches. Nothing is timed.
"""

import io
from contextlib import redirect_stdout
from typing import NamedTuple

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.nn.transformer import Config
from weft.run.train.experts import ExpertsOutcome, ExpertsTraining, train
from weft.run.train.text import read_text
from weft.run.world import World, launch

WAYS = {  # the balance loss's weight, and the bias's step
    "no balance": (0.0, 0.0),
    "loss, 0.01": (0.01, 0.0),
    "bias, 0.01": (0.0, 0.01),
}


class BalanceSizes(NamedTuple):
    """The model, how long it learns, and over how many steps choices are counted together."""

    config: Config = Config(layers=2)
    batch: int = 8
    experts: int = 8
    steps: int = 240
    window: int = 20


FULL = BalanceSizes()


def balanced(run: BenchRun, sizes: BalanceSizes = FULL) -> Found:
    """Each expert's share of the tokens, the fullest one's, how many are idle, and the loss.

    A sample is a window of steps; they are in order.
    """
    text, results = read_text(None), []
    for way in run.each(WAYS):
        outcome = launch(_trained, 1, sizes, text, *WAYS[way], timeout=1800)[0]
        shares = [_shares(outcome, begin, sizes) for begin in range(0, sizes.steps, sizes.window)]
        by_expert = zip(*shares, strict=True)
        results += [
            Measurement.of(f"expert {i}", way, "1", taken) for i, taken in enumerate(by_expert)
        ]
        results.append(Measurement.of("the fullest expert", way, "1", [max(s) for s in shares]))
        results.append(Measurement.of("idle experts", way, "1", [s.count(0.0) for s in shares]))
        losses = [
            sum(outcome.losses[begin : begin + sizes.window]) / sizes.window
            for begin in range(0, sizes.steps, sizes.window)
        ]
        results.append(Measurement.of("loss", way, "nat", losses))
    tokens = sizes.batch * sizes.config.seq
    title = (
        f"Shares of {sizes.experts} experts in one layer of the small decoder on the book's text: "
        f"{sizes.steps} steps of {tokens} tokens, k = 1, each sample {sizes.window} steps"
    )
    return title, results


BALANCE = BenchJob("experts-balance", balanced)


def _trained(
    world: World, sizes: BalanceSizes, text: bytes, balance: float, bias: float
) -> ExpertsOutcome:
    """One training, which prints nothing."""
    with redirect_stdout(io.StringIO()):
        how = {"experts": sizes.experts, "balance": balance, "bias": bias, "ranks": 1}
        return train(world, ExpertsTraining(sizes.config, sizes.steps, sizes.batch, **how), text)


def _shares(outcome: ExpertsOutcome, begin: int, sizes: BalanceSizes) -> list[float]:
    """Of the choices of some steps in a row, each expert's share."""
    rows = [layers[0] for layers in outcome.choices[begin : begin + sizes.window]]
    counts = [sum(given) for given in zip(*rows, strict=True)]
    return [count / sum(counts) for count in counts]
