"""`weft run linear`: sequences in parts over ranks are learned as by one process."""

import pytest
import torch

from weft import cli
from weft.nn.transformer import Config
from weft.plan.linear import DECODER_RULES, METHODS
from weft.run.train.linear import LinearTraining, train
from weft.run.world import launch

TEXT = bytes(range(33, 120)) * 3
TINY = Config(layers=2, width=8, heads=2, seq=7)


def exact(world, trainings):
    """The losses of several trainings, in float64."""
    torch.set_default_dtype(torch.float64)
    return [train(world, training, TEXT) for training in trainings]


def test_losses_are_those_of_one_process():
    cases = [(rule, METHODS[i % 2]) for i, rule in enumerate(DECODER_RULES)]
    one, three = (
        launch(exact, n, [LinearTraining(TINY, 3, 2, 0.1, 0, *case, n) for case in cases])
        for n in (1, 3)
    )
    assert three[0] == three[1] == three[2]
    for case, alone, together in zip(cases, one[0], three[0], strict=True):
        assert together == pytest.approx(alone, rel=0, abs=1e-10), case


def test_the_command_says_what_it_does(tmp_path, capsys):
    (tmp_path / "text").write_bytes(TEXT)
    words = ["run", "linear", f"--text={tmp_path / 'text'}", "--ranks=2", "--steps=2", "--seq=5"]
    words += ["--layers=1", "--width=8", "--heads=2", "--rule=delta"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "parameters in 1 block of width 8, 2 processes, 2 steps of 20 tokens" in shown
    assert shown.count("nats per byte") == 2
    state = 4 * 2 * 4 * 4 * 4  # batch, heads, K, V, bytes; rank 0 sends one, in forward
    assert f"in a step: predicted {state:,} bytes, measured {state:,}" in shown
    assert cli.main([*words, "--seq=1"]) == 2
    assert "--seq is 1, must be at least --ranks = 2" in capsys.readouterr().err
