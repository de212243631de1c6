"""`weft run tensor`: matrices over ranks are learned as by one process."""

import pytest
import torch

from weft import cli
from weft.nn.transformer import Config
from weft.run.train.tensor import TensorTraining, train
from weft.run.world import launch

TEXT = bytes(range(33, 120)) * 3
TINY = Config(layers=2, width=16, heads=4, seq=6)


def exact(world, trainings):
    """The losses of several trainings, in float64."""
    torch.set_default_dtype(torch.float64)
    return [train(world, training, TEXT) for training in trainings]


def test_losses_are_those_of_one_process():
    first = TINY, 3, 2, 0.1, 0
    alone = launch(exact, 1, [TensorTraining(*first, ranks=1)])[0][0]
    cases = (False, False), (True, False), (True, True)
    three = launch(exact, 3, [TensorTraining(*first, *case, 3) for case in cases], backend="gloo")
    assert three[0] == three[1] == three[2]
    for case, together in zip(cases, three[0], strict=True):
        assert together == pytest.approx(alone, rel=0, abs=1e-10), case


@pytest.mark.parametrize("more", [[], ["--sequence-parallel"], ["--overlap"]])
def test_the_command_says_what_it_does(tmp_path, capsys, more):
    (tmp_path / "text").write_bytes(TEXT)
    words = ["run", "tensor", f"--text={tmp_path / 'text'}", "--t=2", "--steps=2", "--seq=6"]
    words += ["--layers=1", "--width=8", "--heads=2", *more]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "parameters in 1 block of width 8, 2 processes, 2 steps of 24 tokens" in shown
    assert shown.count("nats per byte") == 2
    tokens, width, size = 4 * 6, 8, 4
    nbytes = (4 * width + 2 * width + 3) * tokens * size  # a layer, the ends, the loss
    nbytes += (4 + 2) * width * size if more else 0  # three norms
    assert f"in a step: predicted {nbytes:,} bytes, measured {nbytes:,}" in shown
    for wrong, says in {
        "--seq=7": "--seq is 7, must be a multiple of --t = 2",
        "--heads=1": "--heads is 1, must be at least --t = 2",
        "--t=0": "--t is 0, must be a whole number of at least 1",
    }.items():
        if more or "seq" not in wrong:
            assert cli.main([*words, wrong]) == 2
            assert says in capsys.readouterr().err
