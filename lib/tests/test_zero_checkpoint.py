"""Checkpoints of ZeRO: the same to the bit on any number of ranks, and damage is told."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from itertools import chain

import pytest
import torch
import torch._dynamo  # launch then has it loaded once, and not each rank
from zero_checkpoint_cases import (
    Model,
    loaded,
    made,
    momentum,
    optimizer,
    pieces,
    read_from,
    refused,
    saved,
    weights,
)

from weft.plan.zero.checkpoint import held, sources, written
from weft.run.world import launch
from weft.run.zero.checkpoint.folder import exists, load, save


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint of three ranks at stage 2, and what they had."""
    folder = tmp_path_factory.mktemp("checkpoint")
    return folder, launch(saved, 3, str(folder), 2, 2)


def whole(ranks):
    """Weights of the first rank, which all others must have too, and the optimizer's state."""
    assert all(rank[0] == ranks[0][0] for rank in ranks)
    return ranks[0][0], optimizer([rank[1] for rank in ranks])


class TestAnotherDivision:
    @pytest.mark.parametrize(("n", "stage", "bucket"), [(2, 3, 11), (1, 0, 11), (4, 1, 1000)])
    def test_weights_and_state_are_the_same_to_the_bit(self, folder, n, stage, bucket):
        path, before = folder
        after = launch(partial(loaded, bucket=bucket), n, str(path), stage)
        assert whole(after) == whole(before)

    def test_it_goes_on_as_if_it_had_not_been_interrupted(self, folder):
        path, before = folder
        after = launch(loaded, 3, str(path), 2, 2)
        assert [rank[2:] for rank in after] == [rank[2:] for rank in before]

    def test_from_stage_3_and_stage_0_back_to_stage_1(self, tmp_path):
        for n, stage in ((2, 3), (2, 0)):
            before = launch(partial(saved, make=momentum), n, str(tmp_path), stage)
            after = launch(partial(loaded, make=momentum), 3, str(tmp_path), 1)
            assert whole(after) == whole(before)

    def test_masters_and_the_scaler(self, tmp_path):
        before = launch(half, 2, str(tmp_path), 2, True)
        after = launch(half, 3, str(tmp_path), 1, False)
        assert whole(after) == whole(before)
        assert after[0][2] == before[0][2]
        assert any(value != torch.tensor(value).half().item() for value in flat(before))


def half(world, folder, stage, first):
    """fp16 with masters and a loss scaler: its weights, pieces and scaler, saved or loaded."""
    from weft.ref.precision import LossScaler

    scaler = LossScaler(init_scale=64.0, growth_interval=2)
    zero = made(world, stage, dtype=torch.float16, scaler=scaler)
    if first:
        for step in range(3):
            scaler.scale(zero(torch.ones(2, 3) * step).float().square().mean()).backward()
            zero.step()
            zero.zero_grad()
        save(folder, zero, 3)
    else:
        load(folder, zero)
    return weights(zero), pieces(zero), scaler.state_dict()


def flat(ranks):
    """All master weights of some ranks."""
    return chain.from_iterable(piece[2] for rank in ranks for piece in rank[1])


class TestFiles:
    def test_each_rank_writes_its_share_only(self, folder):
        path, before = folder
        place = path / json.loads((path / "latest").read_text())["place"]
        sizes = [(place / f"rank-{rank:04d}.bin").stat().st_size for rank in range(3)]
        kept = [sum(len(piece[2]) for piece in rank[1]) for rank in before]
        shared = 8 + 4 * 5  # the buffer and the frozen parameter, by rank 0
        for rank, size in enumerate(sizes):
            steps = size - 3 * 4 * kept[rank] - (shared if rank == 0 else 0)
            assert 0 <= steps <= 4 * 5  # a count of steps for each parameter, by one of the ranks
        assert {path.name for path in place.iterdir()} == {
            "manifest.json", *(f"rank-{rank:04d}.bin" for rank in range(3))
        }  # fmt: skip

    @pytest.mark.parametrize(("m", "stage"), [(2, 1), (4, 2), (2, 0)])
    def test_each_rank_reads_what_the_plan_says(self, folder, m, stage):
        path, before = folder
        ranks = launch(read_from, m, str(path), stage)
        whole, cells = ranks[0][2], ranks[0][3]
        assert held(cells, 3, 2) == tuple(map(ranges, (rank[1] for rank in before)))
        there = written(held(cells, 3, 2), whole)
        for (read, mine, _, _), plan in zip(ranks, held(cells, m, stage), strict=True):
            assert mine == plan
            right = set()
            for name, elements in plan.items():
                who = [rank for rank in range(3) if name in there[rank]]
                found = sources(elements, [there[rank][name] for rank in who])
                right |= {(name, who[i]) for i, _ in found}
            assert read == right

    def test_it_loads_no_other_checkpoints_library(self):
        loaded = "'torch.distributed.checkpoint' in sys.modules"
        check = f"import sys, weft.run.zero.checkpoint; sys.exit({loaded})"
        subprocess.run([sys.executable, "-c", check], check=True)

    def test_they_are_private_and_hold_no_pickle(self, folder):
        path, _ = folder
        for file in path.rglob("*"):
            assert file.stat().st_mode & 0o077 == 0, file
            assert not file.read_bytes().startswith((b"\x80", b"PK")) if file.is_file() else True

    def test_stage_0_writes_what_all_have_once(self, tmp_path):
        ranks = launch(saved, 2, str(tmp_path), 0)
        size = sum(file.stat().st_size for file in tmp_path.rglob("*.bin"))
        kept = sum(len(piece[2]) for piece in ranks[0][1])
        assert size == 3 * 4 * kept + 8 + 4 * 5 + 4 * 5

    def test_the_optimizers_settings_come_back(self, tmp_path):
        launch(alone, 1, str(tmp_path), settings)

    def test_only_the_last_is_kept(self, tmp_path):
        (tmp_path / "mine.txt").write_text("not a checkpoint")
        launch(alone, 1, str(tmp_path), save_twice)
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == ["latest", "mine.txt", "step-00000004"]
        assert exists(tmp_path)
        assert not exists(tmp_path / "elsewhere")


def ranges(pieces):
    """Which elements of which parameters some pieces are."""
    return {name: range(start, start + len(numbers)) for name, start, numbers, _ in pieces}


def alone(world, folder, do):
    """Do something with a Zero on one rank."""
    return do(folder, made(world, 1))


def settings(folder, zero):
    (group,) = zero.optimizer.param_groups
    before = {key: value for key, value in group.items() if key != "params"}
    group["lr"] = 0.125
    save(folder, zero, 1)
    group |= {"lr": 7.0, "betas": (0.0, 0.0), "weight_decay": 3.0}
    load(folder, zero)
    assert {key: value for key, value in group.items() if key != "params"} == before | {"lr": 0.125}


def save_twice(folder, zero):
    save(folder, zero, 3)
    save(folder, zero, 3)  # the same step again, as after a restart
    assert load(folder, zero) == (3, None)
    save(folder, zero, 4, "four")
    assert load(folder, zero) == (4, "four")


class TestDamage:
    @pytest.mark.parametrize(
        ("harm", "name", "words"),
        [
            (lambda path: flip(path / "rank-0001.bin", 40), "rank-0001.bin", "is damaged"),
            (lambda path: flip(path / "rank-0002.bin", -1), "rank-0002.bin", "is damaged"),
            (lambda path: os.truncate(path / "rank-0001.bin", 99), "rank-0001.bin", "cut short"),
            (lambda path: (path / "rank-0000.bin").unlink(), "rank-0000.bin", "is missing"),
            (lambda path: flip(path / "manifest.json", 70), "manifest.json", "is damaged"),
            (lambda path: (path / "manifest.json").unlink(), "manifest.json", "is missing"),
            (lambda path: flip(path.parent / "latest", 5), "latest", "is damaged"),
            (lambda path: point(path, "../elsewhere"), "latest", "is damaged"),
            (lambda path: (path.parent / "latest").unlink(), "", "there is no file latest"),
        ],
    )
    def test_it_is_told_by_every_rank_and_nothing_changes(
        self, folder, tmp_path, harm, name, words
    ):
        shutil.copytree(folder[0], tmp_path / "copy")
        (place,) = (tmp_path / "copy").glob("step-*")
        harm(place)
        told = launch(refused, 2, str(tmp_path / "copy"), 2)
        assert all(rank == told[0] for rank in told)
        words_told, unchanged = told[0]
        assert unchanged
        assert words in words_told
        assert name in words_told

    def test_another_module(self, folder):
        path = str(folder[0])
        (told, unchanged), _ = launch(partial(refused, width=6), 2, path, 2)
        assert "again.weight of shape [5, 5], the module's is [6, 6]; nothing was loaded" in told
        assert unchanged
        told = launch(alone, 1, path, other_module)[0]
        assert "has again.weight, which the module has not" in told[0]
        assert "has no extra, which the module has" in told[1]
        assert "has last.bias in float32, the optimizer's is in float64" in told[2]
        assert "has the state of AdamW, the optimizer is of class SGD" in told[3]
        assert "has 1 groups of parameters, the optimizer has 2" in told[4]

    def test_arguments(self, tmp_path):
        launch(alone, 1, str(tmp_path), wrong_arguments)
        assert list(tmp_path.iterdir()) == []

    def test_state_that_one_rank_alone_has(self, tmp_path):
        told = launch(half_a_state, 3, str(tmp_path))
        assert told == [told[0]] * 3
        assert "of state/seen/" in told[0] and "must have each of 0:" in told[0]
        assert list(tmp_path.iterdir()) == []


def half_a_state(world, folder):
    """What save says on this rank if one rank has a state that others have not."""
    zero = made(world, 1)
    if world.rank == 1:
        for piece in zero.pieces():
            zero.optimizer.state[piece.parameter] = {"seen": torch.ones_like(piece.parameter)}
    with pytest.raises(ValueError) as caught:
        save(folder, zero, 1)
    return str(caught.value)


def other_module(folder, zero):
    """What load says of a parameter less, one more, another dtype, and other optimizers."""
    from weft.run.zero.wrap import Zero

    told = []
    for change, make in (
        (drop, torch.optim.AdamW),
        (add, torch.optim.AdamW),
        (lambda module: module.double(), torch.optim.AdamW),
        (lambda module: None, momentum),
        (lambda module: None, two_groups),
    ):
        module = Model()
        change(module)
        other = Zero(module, make, 1, zero.update.group)
        with pytest.raises(ValueError) as caught:
            load(folder, other)
        told.append(str(caught.value))
    return told


def two_groups(parameters):
    first, *others = parameters
    return torch.optim.AdamW([{"params": [first]}, {"params": others}])


def drop(module):
    del module.again, module.tied


def add(module):
    module.again = module.tied = torch.nn.Linear(5, 5, bias=False)
    module.extra = torch.nn.Parameter(torch.ones(2))


def wrong_arguments(folder, zero):
    with pytest.raises(ValueError, match="step is -1, must be a whole number of at least 0"):
        save(folder, zero, -1)
    with pytest.raises(ValueError, match=r"extra must be what JSON can hold: .*Tensor"):
        save(folder, zero, 1, torch.ones(1))
    zero.optimizer.state[zero.pieces()[0].parameter] = {"odd": torch.ones(2, 3)}
    with pytest.raises(ValueError, match=r"state 'odd' of .* that is \(2, 3\), must be a number"):
        save(folder, zero, 1)


def flip(path, at):
    """One bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def point(place, name):
    """Have `latest` name another folder."""
    pointer = place.parent / "latest"
    pointer.write_text(json.dumps(json.loads(pointer.read_text()) | {"place": name}))
