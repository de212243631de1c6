"""What ZeRO refuses, what it finds out instead of hanging, and the thread it works with."""

import gc
import sys
import threading
import time
from functools import partial

import cloudpickle
import pytest
import torch
import torch._dynamo  # launch then has it loaded once, and not each rank
import torch.distributed as dist
from torch import nn

from weft.meter import live, traffic
from weft.run.collectives import execute as collectives
from weft.run.world import RankFailed, World, launch
from weft.run.zero.comm_thread import comm_thread
from weft.run.zero.wrap import Zero

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file

SGD = partial(torch.optim.SGD, lr=0.1)


def mixed() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())


def refused(world) -> list[str]:
    """What each wrong argument is told, on this rank."""
    right = {"module": nn.Linear(2, 3), "optimizer": SGD, "stage": 3, "world": world}
    told = []
    for wrong in (
        {"stage": 4},
        {"stage": True},
        {"stage": "2"},
        {"module": nn.Tanh()},
        {"module": nn.Linear(2, 3).requires_grad_(False)},
        {"module": [nn.Linear(2, 3)]},
        {"module": nn.Linear(2, 3, device="meta")},
        {"module": nn.Embedding(4, 2, sparse=True)},
        {"module": mixed()},
        {"world": dist.GroupMember.NON_GROUP_MEMBER},
        {"world": 2},
        {"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters())},
        {"optimizer": lambda parameters: "sgd"},
        {"optimizer": lambda parameters: torch.optim.SGD(right["module"].parameters())},
        {"bucket": 0},
        {"bucket": -5},
        {"bucket": 1.5},
        {"dtype": torch.float64},
        {"dtype": "bf16"},
        {"scaler": 2.0**16},
        {"world": World(world.rank, world.size, torch.device("cuda", 0), world.group())},
    ):
        with pytest.raises(ValueError) as error:
            Zero(**right | wrong)
        told.append(f"{next(iter(wrong))}: {error.value}")
        assert right["module"].weight.shape == (3, 2)  # whoever is refused has not lost anything
    zero = Zero(**right)
    for wrong in (0, -1.0, float("nan"), "1", True):
        with pytest.raises(ValueError) as error:
            zero.clip(wrong)
        told.append(f"max_norm: {error.value}")
    return told


def test_wrong_arguments_are_named():
    for told in launch(refused, 2):
        for line in told:
            name, _, message = line.partition(": ")
            expected = "module" if "cuda" in message else name
            assert message.startswith((expected, f"{expected} ")), line
            assert "must" in message and len(message) < 200, line


def test_ranks_that_were_given_different_things_all_find_out():
    def work(world):
        told = []
        for make in (
            lambda: Zero(nn.Linear(2 + world.rank, 3), SGD, 0, world),
            lambda: Zero(nn.Linear(2, 3, bias=world.rank < 2), SGD, 1, world),
            lambda: Zero(nn.Linear(2, 3), SGD, 1 + world.rank % 2, world),
            lambda: Zero(nn.Linear(2, 3), SGD, 3, world, bucket=10 + world.rank),
        ):
            with pytest.raises(ValueError, match="must be the same on all") as error:
                make()
            told.append(str(error.value))
        return told

    ranks = launch(work, 3)
    assert ranks[0] == ranks[1] == ranks[2]
    assert "rank 1 has parameter weight (3, 3)" in ranks[0][0]
    assert "2 parameters on rank 0 and 1 on rank 2" in ranks[0][1]


class Sparse(nn.Module):
    """Gets a sparse gradient without saying so."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 2))

    def forward(self, x):
        return nn.functional.embedding(x, self.weight, sparse=True).sum()


def test_a_sparse_gradient_is_refused():
    def work(world):
        zero = Zero(Sparse(), SGD, 1, world)
        with pytest.raises(ValueError, match="module has weight, whose gradient is sparse"):
            zero(torch.tensor([1, 2])).backward()
        return True

    assert launch(work, 1) == [True]


# --- failures -------------------------------------------------------------------------------------


class Faulty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("no gradient today")


@pytest.mark.parametrize("stage", [0, 3])
def test_a_rank_that_fails_in_backward_ends_the_launch(stage):
    def work(world):
        net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
        zero = Zero(net, SGD, stage, world, bucket=9)
        for step in range(3):
            x = torch.ones(2, 3, requires_grad=True)
            if step == 1 and world.rank == 1:
                net[1].register_forward_hook(lambda module, x, y: Faulty.apply(y))
            zero(x).sum().backward()
            zero.step()
            zero.zero_grad()

    start = time.monotonic()
    with pytest.raises(RankFailed, match="rank 1 of 3: ArithmeticError: no gradient today"):
        launch(work, 3, timeout=60)
    assert time.monotonic() - start < 30


def test_after_a_backward_that_failed_zero_grad_starts_anew():
    def work(world):
        right, found = None, []
        for fails in (False, True):
            torch.manual_seed(1)
            net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
            for stage in range(4):
                zero = Zero(net if stage == 0 else copied(net), SGD, stage, world, bucket=9)
                if fails:
                    handle = zero.module[0].register_forward_hook(lambda m, x, y: Faulty.apply(y))
                    with pytest.raises(ArithmeticError):
                        zero(torch.ones(2, 3, requires_grad=True)).sum().backward()
                    handle.remove()
                zero.zero_grad()
                zero(torch.ones(2, 3)).sum().backward()
                zero.step()
                zero.zero_grad()
                found.append(torch.cat([x.flatten() for x in zero.state_dict().values()]))
            right = found[0] if right is None else right
        half = len(found) // 2
        assert all(map(torch.equal, found[:half], found[half:]))
        return True

    assert launch(work, 2) == [True] * 2


def copied(net: nn.Sequential) -> nn.Sequential:
    other = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    other.load_state_dict(net.state_dict())
    return other


def test_a_rank_without_a_backward_brings_zeros():
    def work(world):
        ends = []
        for stage in (0, 1, 2):
            torch.manual_seed(1)
            zero = Zero(nn.Linear(2, 2), SGD, stage, world)
            before = zero.state_dict()["weight"]
            if world.rank == 0:
                zero(torch.ones(1, 2)).sum().backward()
            zero.step()
            ends.append((before - zero.state_dict()["weight"]) / 0.1)
        return ends

    for ends in launch(work, 2):
        for moved in ends:
            torch.testing.assert_close(moved, torch.full((2, 2), 0.5))


def test_on_an_axis_of_a_grid_the_others_do_not_matter():
    def work(world):
        axis, found = world.grid(p=2, d=2).axis("d"), []
        for stage in range(4):
            torch.manual_seed(world.rank)  # the first of each axis decides
            zero = Zero(nn.Linear(3, 1, bias=False), SGD, stage, axis)
            before = zero.state_dict()["weight"]
            zero(torch.full((1, 3), float(world.rank))).sum().backward()
            zero.step()
            found.append(((before - zero.state_dict()["weight"]) / 0.1).tolist())
        return found

    for rank, found in enumerate(launch(work, 4)):
        for moved in found:
            assert moved[0] == pytest.approx([0.5 if rank < 2 else 2.5] * 3, rel=1e-4)


# --- the thread for communication -----------------------------------------------------------------


def comm_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "weft comm"]


def test_two_at_once_share_a_thread_and_closing_both_stops_it():
    def work(world):
        gc.freeze()  # what is there already takes long to look through
        for stage in range(4):
            net = nn.Linear(3, 2)
            one, two = Zero(net, SGD, stage, world), Zero(nn.Linear(2, 3), SGD, stage, world)
            loss = two(one(torch.ones(1, 3))).sum()
            loss.backward()
            for zero in (one, two):
                zero.step()
                zero.zero_grad()
            assert one.comm is two.comm and len(comm_threads()) == 1
            (thread,) = comm_threads()
            assert thread.daemon
            one.close()
            two.close()
            del one, two, zero, loss
            gc.collect()
            thread.join(10)
            assert not comm_threads()
        return True

    assert launch(work, 2) == [True] * 2


def test_a_closed_module_is_an_ordinary_one_again():
    def work(world):
        ends = []
        for stage in range(4):
            torch.manual_seed(1)
            net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))
            zero = Zero(net, SGD, stage, world)
            zero(torch.full((1, 3), float(world.rank))).sum().backward()
            zero.step()
            zero.zero_grad()
            zero.close()
            zero.close()  # the second time there is nothing to do
            loss = net(torch.ones(1, 3)).sum()
            loss.backward()
            assert all(parameter.grad.abs().sum() > 0 for parameter in net.parameters())
            for module in net.modules():
                assert not module._forward_hooks and not module._forward_pre_hooks
            again = Zero(net, SGD, 3 - stage, world)  # which has its gradients to itself
            again(torch.ones(1, 3)).sum().backward()
            again.step()
            again.close()
            ends.append([loss.item(), *(weight.tolist() for weight in net.state_dict().values())])
        return ends

    for ends in launch(work, 2):
        for end in ends[1:]:
            assert end == ends[0]


def test_meters_see_what_the_thread_does_and_only_while_they_watch():
    def work(world):
        work = comm_thread(world.group())
        row = torch.ones(8)
        work.submit(work.ring, "all_reduce", row).result()
        with traffic() as sent, live() as kept:
            ticket = work.submit(work.ring, "all_reduce", row)
            collectives.all_reduce(torch.ones(8), world)  # beside it, between the same ranks
            ticket.result()
        work.submit(work.ring, "all_reduce", row).result()
        assert sent.bytes["send"] == 2 * 4 * 8
        assert kept.peak >= 4 * 8  # what the collective beside it was given
        assert torch.equal(row, torch.full((8,), 8.0))
        return True

    assert launch(work, 2) == [True] * 2


def test_the_thread_tells_what_went_wrong_and_stays_broken():
    def work(world):
        work, seen = comm_thread(world.group()), []
        first = work.submit(seen.append, 1)
        broken = work.submit(lambda: 1 / 0)
        later = work.submit(seen.append, 2)
        first.result()
        for ticket in (broken, later):
            with pytest.raises(ZeroDivisionError):
                ticket.result()
        return seen

    assert launch(work, 1) == [[1]]
