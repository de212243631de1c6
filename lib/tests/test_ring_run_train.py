"""`weft run ring`: sequences over ranks are learned as by one process."""

import pytest
import torch

from weft import cli
from weft.nn.transformer import Config, Embedding, loss, stages
from weft.plan.ring import LAYOUTS, METHODS, sent
from weft.run.ring import shard
from weft.run.train.ring import RingTraining, stages_on, train
from weft.run.world import launch

TEXT = bytes(range(33, 120)) * 3
TINY = Config(layers=2, width=12, heads=3, seq=7)


def exact(world, trainings):
    """The losses of several trainings, in float64."""
    torch.set_default_dtype(torch.float64)
    return [train(world, training, TEXT) for training in trainings]


def test_losses_are_those_of_one_process():
    cases = [*zip(LAYOUTS, METHODS, strict=True), *((layout, "ring") for layout in LAYOUTS[1:])]
    alone = launch(exact, 1, [RingTraining(TINY, 3, 2, 0.1, 0, ranks=1)])[0][0]
    three = launch(exact, 3, [RingTraining(TINY, 3, 2, 0.1, 0, *case, 3) for case in cases])
    assert three[0] == three[1] == three[2]
    for case, together in zip(cases, three[0], strict=True):
        assert together == pytest.approx(alone, rel=0, abs=1e-10), case


def on_an_axis(world):
    """Two sequences, each over two ranks of a grid: how far the first weights' gradient is off."""
    axis = world.grid(d=2, c=2).axis("c")
    torch.manual_seed(0)
    (model,), (whole,) = stages_on(axis, TINY, layout="striped"), stages(TINY, 1)
    whole.load_state_dict(model.state_dict())
    tokens = torch.arange(28).view(2, 2, 7)[world.rank // 2]
    share = shard(tokens, axis, "striped")
    (loss(model(share), share) * share.shape[1] / 7).backward()
    loss(whole(tokens), tokens).backward()
    mine, all_of_it = (next(m.parameters()).grad for m in (model, whole))
    torch.distributed.all_reduce(mine, group=axis.group())
    return (mine - all_of_it).abs().max().item()


def test_a_sequence_may_lie_on_an_axis_of_a_grid():
    assert max(launch(on_an_axis, 4)) < 1e-6


def test_the_command_says_what_it_does(tmp_path, capsys):
    (tmp_path / "text").write_bytes(TEXT)
    words = ["run", "ring", f"--text={tmp_path / 'text'}", "--n=2", "--steps=2", "--seq=5"]
    words += ["--layers=1", "--width=8", "--heads=2", "--layout=contiguous"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "parameters in 1 block of width 8, 2 processes, 2 steps of 20 tokens" in shown
    assert shown.count("nats per byte") == 2
    how = {"B": 4, "layout": "contiguous", "rank": 0}
    nbytes = sum(sent(5, 2, 2, 2, 4, "ring", 4, back, **how) for back in (False, True))
    assert f"in a step: predicted {nbytes:,} bytes, measured {nbytes:,}" in shown
    for wrong, says in {
        "--seq=1": "--seq is 1, must be at least --n = 2",
        "--heads=1": "--heads is 1, must be a multiple of --n = 2",
        "--n=0": "--n is 0, must be a whole number of at least 1",
    }.items():
        assert cli.main([*words, "--method=ulysses", wrong]) == 2
        assert says in capsys.readouterr().err


def test_an_embedding_knows_its_tokens_places():
    config = Config(width=4, seq=6)
    part = Embedding(config, places=[1, 4])
    tokens = torch.tensor([[7, 8]])
    assert part(tokens).equal(part.tokens(tokens) + part.positions.weight[[1, 4]])
    with pytest.raises(ValueError, match="tokens have 3 in time, must have 2, as places"):
        part(torch.tensor([[1, 2, 3]]))
    with pytest.raises(ValueError, match="places is 6, must be at most 5"):
        Embedding(config, places=[6])
