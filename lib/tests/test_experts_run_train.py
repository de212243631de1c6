"""`weft run experts`: experts over ranks are learned as by one process, and balance is shown."""

import pytest
import torch

from weft import cli
from weft.nn.experts import decoder
from weft.nn.transformer import Config
from weft.run.experts import parallelize, reduce_gradients, steer
from weft.run.train.experts import ExpertsTraining, train
from weft.run.world import launch

TEXT = bytes(range(33, 120)) * 3
TINY = Config(layers=2, width=12, heads=3, seq=7)


def exact(world, trainings):
    """The outcomes of several trainings, in float64."""
    torch.set_default_dtype(torch.float64)
    return [train(world, training, TEXT) for training in trainings]


def test_losses_and_choices_are_those_of_one_process():
    cases = [(4, 2, None, 0.1, 0.0), (5, 1, None, 0.0, 0.02)]
    one, three = (
        launch(exact, n, [ExpertsTraining(TINY, 4, 4, 0.1, 0, *case, n) for case in cases])
        for n in (1, 3)
    )
    assert three[0] == three[1] == three[2]
    for alone, together in zip(one[0], three[0], strict=True):
        assert together.losses == pytest.approx(alone.losses, rel=0, abs=1e-10)
        assert together.choices == alone.choices
        assert not any(map(sum, together.dropped))


def test_the_loss_and_the_bias_keep_experts_busy_that_are_idle_without():
    config = Config(layers=2, width=16, heads=2, seq=32)
    kinds = {"nothing": (0.0, 0.0), "loss": (0.1, 0.0), "bias": (0.0, 0.02)}
    trainings = [ExpertsTraining(config, 60, 4, 0.01, 0, 8, 1, None, *how, 1)
                 for how in kinds.values()]  # fmt: skip
    text = b"".join(b"%d and %d are %d. " % (i, j, i + j) for i in range(40) for j in range(9))
    last = {
        kind: torch.tensor(outcome.choices[-20:]).sum((0, 1)) / (20 * 4 * 32)
        for kind, outcome in zip(kinds, launch(several, 1, trainings, text)[0], strict=True)
    }
    assert last["nothing"].max() > 0.4 and (last["nothing"] == 0).sum() >= 2
    assert all(0.05 < share < 0.25 for kind in ("loss", "bias") for share in last[kind]), last


def several(world, trainings, text):
    return [train(world, training, text) for training in trainings]


def on_an_axis(world):
    """Experts over an axis of a grid, two of each: the first weights' gradient, and the biases."""
    grid, tokens = world.grid(r=2, e=2), torch.arange(28).view(4, 7)
    torch.manual_seed(0)
    alone = parallelize(decoder(TINY, 3).double(), world.grid(a=1, b=4).axis("a"))
    torch.manual_seed(0)
    model = parallelize(decoder(TINY, 3).double(), grid.axis("e"))
    alone(tokens).square().mean().backward()
    model(tokens[world.rank : world.rank + 1]).square().mean().backward()
    reduce_gradients(model, world, grid.axis("r"))
    steer(alone, 0.1)
    steer(model, 0.1, grid.axis("r"))
    first, wanted = (next(m.parameters()).grad for m in (model, alone))
    return (first - wanted).abs().max().item(), model[2].experts.bias.equal(alone[2].experts.bias)


def test_experts_may_lie_on_an_axis_of_a_grid():
    for wrong, same in launch(on_an_axis, 4):
        assert wrong < 1e-12 and same


def test_the_command_says_what_it_does(tmp_path, capsys):
    (tmp_path / "text").write_bytes(TEXT)
    words = ["run", "experts", f"--text={tmp_path / 'text'}", "--e=2", "--steps=2", "--seq=5"]
    words += ["--layers=2", "--width=8", "--heads=2", "--experts=3", "--batch=3", "--factor=1"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "parameters in 2 blocks of width 8, 2 processes, 2 steps of 15 tokens" in shown
    assert shown.count("nats per byte  fullest expert") == shown.count(" of 3 idle") == 2
    assert "% dropped" in shown and "block 2: " in shown
    told = shown.partition("in a step: predicted ")[2].split()
    assert told[0] == told[3] != "0" and told[2] == "measured"
    for wrong, says in {
        "--batch=1": "--batch is 1, must be at least --e = 2",
        "--layers=1": "--layers is 1, must be at least 2",
        "--k=4": "k is 4, must be at most experts = 3",
        "--factor=-1": "factor is -1.0, must be a number above 0",
        "--balance=-1": "--balance is -1.0, must be a finite number of at least 0",
        "--e=0": "--e is 0, must be a whole number of at least 1",
    }.items():
        assert cli.main([*words, wrong]) == 2
        assert says in capsys.readouterr().err
