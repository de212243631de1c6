"""`weft run composing`: on any layout, on one node or two, it learns what one process learns."""

import os
import re
import sys
from pathlib import Path

import namespaces
import pytest
import torch

from weft import cli
from weft.nn.transformer import Config
from weft.plan.composing import Layout
from weft.run.train.composing import ComposingTraining, train
from weft.run.world import launch

LIB = Path(__file__).parents[1]
TEXT = bytes(range(33, 120)) * 3
TINY = Config(layers=4, width=16, heads=4, seq=8)
WORDS = ["--steps=3", "--seq=8", "--layers=4", "--width=16", "--heads=4", "--batch=4"]
NODE = (
    "{python} -m torch.distributed.run --nnodes 2 --nproc-per-node 2 --rdzv-id weft"
    " --rdzv-backend c10d --rdzv-endpoint 10.77.0.1:29500 --rdzv-conf is_host={host}"
    " --local-addr 10.77.0.{address} -m weft run composing {words}"
)


def exact(world, trainings):
    """The losses of several trainings, in float64."""
    torch.set_default_dtype(torch.float64)
    return [train(world, training, TEXT).losses for training in trainings]


def test_losses_are_those_of_one_process():
    def training(**layout):
        how = {"config": TINY, "steps": 3, "batch": 4, "rate": 0.1, "max_norm": 0.5}
        return ComposingTraining(**how, layout=Layout(**layout))

    first, second = {"p": 2, "t": 2, "schedule": "zb_h1"}, {"d": 2, "c": 2, "zero": 3}
    (alone,) = launch(exact, 1, [training()])[0]
    ranks = launch(exact, 4, [training(**first), training(**second)], backend="gloo")
    for found in ranks:
        assert found == ranks[0]
        for losses in found:
            assert losses == pytest.approx(alone, rel=0, abs=1e-10)


@pytest.fixture
def words(tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    return ["run", "composing", f"--text={tmp_path / 'text'}", *WORDS]


def losses(shown):
    return re.findall(r"loss ([\d.]+) nats", shown)


def test_the_command_goes_on_under_another_layout_and_shows_its_last_step(words, tmp_path, capsys):
    assert cli.main([*words, "--steps=5"]) == 0
    alone = capsys.readouterr().out
    kept = f"--checkpoint={tmp_path / 'kept'}"
    assert cli.main([*words, kept, "--p=2", "--schedule=zb_h1", "--clock=cpu"]) == 0
    shown = capsys.readouterr().out
    assert "parameters in 4 blocks of width 16, 2 processes, 3 steps of 32 tokens" in shown
    idle = r"predicted: .* from first to last, idle 0\.\d+ of the time\n.*rank 1"
    assert re.search(idle, shown, re.DOTALL)
    assert shown.index("predicted:") < shown.index("measured:") and "B3" in shown
    assert "sent in a step by a rank, on average:" in shown
    more = ["--d=2", "--zero=2", "--steps=5"]
    assert cli.main([*words, kept, *more]) == 0
    later = capsys.readouterr().out
    assert "had 3 steps, 2 were left" in later
    assert losses(shown) + losses(later) == losses(alone)
    assert cli.main([*words, kept, *more]) == 0
    assert "--steps 5 counts them, too; give more to go on" in capsys.readouterr().out


def test_what_cannot_be_is_said_before_a_rank_starts(words, capsys):
    for wrong, says in {
        "--p=5": "config has 4 layers, must have one for each of p * v = 5 stages",
        "--t=5": "config has heads = 4, must have at least one for each of t = 5",
        "--t=0": "--t is 0, must be a whole number of at least 1",
        "--d=3": "--batch is 4, must be a multiple of d * microbatch = 3",
        "--e=3": "--e is 3, must divide d * c = 1",
        "--zero=4": "--zero is 4, must be 0, 1, 2 or 3",
        "--clip=0": "--clip is 0.0, must be a number above 0",
        "--p=2 --schedule=dualpipe_v --microbatch=2": "m is 2, must be at least 2 * p = 4",
        "--t=2 --seq=7 --sequence-parallel": "batch has 7 tokens in time, must have a multiple",
        "--d=2 --e=2": "config has 0 experts, must have at least one for each of e = 2",
    }.items():
        assert cli.main([*words, *wrong.split()]) == 2
        assert says in capsys.readouterr().err, wrong


def test_two_nodes_under_torchrun_learn_the_same(words, capsys):
    namespaces.require()
    given = [*words[2:], "--p=2", "--t=2"]
    assert cli.main([*words[:2], *given]) == 0
    first, second = (
        NODE.format(python=sys.executable, host=host, address=address, words=" ".join(given))
        for host, address in ((1, 1), (0, 2))
    )
    paths = os.pathsep.join([str(LIB), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "eth0"}
    done = namespaces.pair(
        f"nsenter -t $second -n {second} & other=$!\n{first}\nwait $other",
        env=environment | {"OMP_NUM_THREADS": "1"}, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(losses(done.stdout)) == 3
    assert losses(done.stdout) == losses(capsys.readouterr().out)
