"""`weft plan cluster`: ranked layouts, configs, and a judged command line."""

import json
import shlex
from dataclasses import fields
from itertools import pairwise

import pytest

from weft import cli
from weft.plan.composing import (
    CLUSTERS,
    Layout,
    estimate,
    from_megatron,
    from_torchtitan,
    search,
    to_megatron,
    words,
)
from weft.plan.composing.judge import change, changes, improved
from weft.plan.composing.systems import LIMITS, SYSTEMS, search_for, text_for
from weft.plan.shape import SHAPES

SHAPE, POD = SHAPES["llama3-8b"], CLUSTERS["h100-pod"].of(16)
ASKED = ["plan", "cluster", "llama3-8b", "--chip=h100", "--devices=16", "--batch=64"]
LINE = shlex.join(["torchrun", "--nproc-per-node", "8", "--nnodes", "2", "pretrain_gpt.py",
                   *to_megatron(SHAPE, Layout(p=4, t=4), 64), "--lr", "1e-4"])  # fmt: skip


def ran(capsys, *arguments):
    """What a command prints, with every line at most 100 columns."""
    assert cli.main(list(arguments)) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    return shown


def test_the_ranked_table_is_the_search(capsys, tmp_path):
    shown = ran(capsys, *ASKED, "--rows=4", f"--json={tmp_path / 'a.json'}")
    found = search_for("any", SHAPE, 64, POD, keep=4)
    assert found[0] == search(SHAPE, 64, POD, keep=1)[0]
    rows = json.loads((tmp_path / "a.json").read_text())["layouts"]
    assert [row["seconds"] for row in rows] == [costs.seconds for _, costs in found]
    assert [Layout(**{f.name: row[f.name] for f in fields(Layout)}) for row in rows] == [
        layout for layout, _ in found
    ]
    assert "The second is " in shown and "16 h100, 8 in a node with nvlink4" in shown


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_config_is_of_the_first_that_a_system_can_say(system, capsys):
    shown = ran(capsys, *ASKED, "--rows=2", f"--config={system}")
    layout, _ = search_for(system, SHAPE, 64, POD, keep=2)[0]
    text = shown.partition(":\n\n")[2].rstrip("\n")
    assert text == text_for(system, SHAPE, layout, 64, POD)
    if system == "megatron":
        assert from_megatron(words(text)) == (SHAPE, layout, 64)
    if system == "torchtitan":
        assert from_torchtitan(text) == (SHAPE, layout, 64)


def test_a_restricted_search_misses_nothing_that_can_be_said():
    everything = search(SHAPE, 64, POD, keep=20)
    for system in LIMITS:
        best = search_for(system, SHAPE, 64, POD, keep=1)[0]
        for layout, costs in everything:
            try:
                text_for(system, SHAPE, layout, 64, POD)
            except ValueError:
                continue
            assert costs.seconds >= best[1].seconds


def test_context_ranks_that_gain_nothing_are_left_out():
    found = search_for("any", SHAPE, 64, POD)
    for layout, costs in found:
        others = [
            other.seconds for at, other in found
            if at.c < layout.c and (at.p, at.t, at.v) == (layout.p, layout.t, layout.v)
        ]  # fmt: skip
        assert all(costs.seconds < seconds for seconds in others)
    twins = [layout for layout, _ in search(SHAPE, 64, POD, keep=30) if layout.c > 1]
    assert len(twins) > sum(layout.c > 1 for layout, _ in found)


def test_what_is_fixed_stays(capsys):
    shown = ran(capsys, *ASKED, "--fixed", "t=2,zero=1", "recompute=full", "--config", "megatron")
    layout = from_megatron(words(shown.partition(":\n\n")[2]))[1]
    assert (layout.t, layout.zero, layout.recompute) == (2, 1, "full")


def test_a_line_is_judged(capsys, tmp_path):
    path = tmp_path / "train.sh"
    path.write_text("#!/bin/bash\n" + LINE, encoding="utf-8")
    shown = ran(capsys, "plan", "cluster", f"--megatron={LINE}", "--chip=h100")
    again = ran(capsys, "plan", "cluster", "--megatron", str(path), "--chip=h100",
                f"--json={tmp_path / 'a.json'}")  # fmt: skip
    assert again.startswith(shown)
    costs = estimate(SHAPE, Layout(p=4, t=4), 64, POD)
    assert f"MFU {100 * costs.mfu:.1f} %" in shown and "ignored: 1 argument that" in shown
    numbers = json.loads((tmp_path / "a.json").read_text())
    assert numbers["seconds"] == costs.seconds
    path_of = improved(SHAPE, Layout(p=4, t=4), 64, POD, system="megatron")
    assert all(to_megatron(SHAPE, at, 64) for _, at, _ in path_of)
    assert [step["seconds"] for step in numbers["path"]] == [after.seconds for *_, after in path_of]


def test_each_change_helps_and_they_add_up_to_the_last():
    shape, pod, layout = SHAPES["llama2-70b"], POD.of(64), Layout(d=64)  # does not fit
    path = improved(shape, layout, 64, pod)
    costs = [estimate(shape, layout, 64, pod), *(after for *_, after in path)]
    assert not costs[0].fits and costs[-1].fits
    for before, after in pairwise(costs):
        assert after.fits >= before.fits
        assert not before.fits or after.seconds < before.seconds
    for what, at, _ in path:
        assert what == change(layout, at)
        layout = at


def test_a_change_keeps_the_devices_and_is_told():
    layout = Layout(p=4, t=2, d=2, v=2, sequence_parallel=True)
    others = list(changes(layout))
    assert len(set(others)) == len(others) > 10
    assert all(other.devices == 16 and change(layout, other) for other in others)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--chip=h100"], "MODEL is missing"),
        (["llama3-8b", "--chip=h100", "--devices=8"], "--batch is missing"),
        (["llama3-8b", "--batch=8"], "one of --cluster NAME and --chip NAME"),
        (["llama3-8b", "--batch=8", "--chip=h100"], "--devices is missing"),
        (["llama3-8b", "--batch=8", "--chip=h1000", "--devices=8"], "did you mean h100"),
        (["llama3-8b", "--batch=8", "--cluster=selen"], "did you mean selene"),
        (["lama3-8b", "--batch=8", "--cluster=selene"], "did you mean llama3-8b"),
        ([*ASKED[2:], "--fixed", "q=4"], "--fixed has 'q=4', must be NAME=VALUE"),
        ([*ASKED[2:], "--fixed", "t=two"], "must have a whole number behind the ="),
        ([*ASKED[2:], "--fixed", "t=7"], "no layout divides all of these"),
        ([*ASKED[2:], "--fixed", "sequence_parallel=maybe"], "unknown value of sequence_parallel"),
        ([*ASKED[2:], "--config=megatronn"], "did you mean megatron"),
        (
            [*ASKED[2:], "--config=torchtitan", "--fixed", "zero=1"],
            "must be one of 0, 2, 3 for",
        ),
        ([*ASKED[2:], "--rows=0"], "--rows is 0, must be at least 1"),
        ([*ASKED[2:], "--between=ib"], "unknown between 'ib'"),
        (["gpt-1t", "--chip=h100", "--devices=8", "--batch=8"], "no layout of gpt-1t fits 8 h100"),
        (["--megatron", LINE, "--chip=h100", "--batch=8"], "--batch is given beside --megatron"),
        (["--megatron", LINE, "--chip=h100", "--devices=8"], "devices is 8, must be 16"),
        (["--megatron", LINE + " --tensor-paralel 2", "--chip=h100"], "is no argument of Megatron"),
        (["--megatron", "--num-layers 4", "--chip=h100", "--devices=8"], "--hidden-size is missi"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, complaint, capsys):
    assert cli.main(["plan", "cluster", *arguments]) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1
