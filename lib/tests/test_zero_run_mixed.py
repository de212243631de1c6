"""Mixed precision under ZeRO: masters, a loss scaler, and an overflow that one rank alone has."""

import sys
from functools import partial

import cloudpickle
import pytest
import torch
import torch._dynamo  # launch then has it loaded once, and not each rank
from torch import nn

from weft.ref.precision import LossScaler, MasterAdam
from weft.run.world import launch
from weft.run.zero.wrap import Zero

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file

ADAMW = partial(torch.optim.AdamW, lr=0.01, foreach=False)


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3, bias=False))


def data(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(10 * step + rank))


def alone(dtype, scale: float, skipped=()) -> list[list[torch.Tensor]]:
    """What two ranks do with fp32 masters and gradients in `dtype`, by hand, bit for bit."""
    masters = [p.detach().clone().requires_grad_() for p in net().parameters()]
    optimizer, module, found = ADAMW(masters), net().to(dtype), []
    for step in range(3):
        gradients = []
        for rank in range(2):
            loss = module(data(step, rank).to(dtype)).float().square().mean()
            gradients.append(torch.autograd.grad(loss * scale, list(module.parameters())))
        for master, *both in zip(masters, *gradients, strict=True):
            master.grad = (both[0] / 2 + both[1] / 2).float() / scale
        if step not in skipped:
            optimizer.step()
        with torch.no_grad():
            for weight, master in zip(module.parameters(), masters, strict=True):
                weight.copy_(master)
        found.append([weight.detach().clone() for weight in module.parameters()])
    return found


def test_weights_are_the_masters_rounded_and_small_updates_are_not_lost():
    def work(world):
        for stage in range(4):
            zero = Zero(net(), ADAMW, stage, world, bucket=20, dtype=torch.bfloat16)
            for step, right in enumerate(alone(torch.bfloat16, 1.0)):
                zero(data(step, world.rank)).float().square().mean().backward()
                zero.step()
                zero.zero_grad()
                mine = zero.state_dict().values()
                assert all(map(torch.equal, mine, right)), (stage, step)
                assert {weight.dtype for weight in mine} == {torch.bfloat16}
            assert {piece.parameter.dtype for piece in zero.pieces()} <= {torch.float32}
        return True

    assert launch(work, 2) == [True] * 2


@pytest.mark.parametrize("clipped", [False, True])
def test_an_overflow_on_one_rank_skips_the_step_on_all(clipped):
    def work(world):
        for stage in range(4):
            scaler = LossScaler(init_scale=2.0**10, growth_interval=100)
            zero = Zero(net(), ADAMW, stage, world, bucket=20, dtype=torch.float16, scaler=scaler)
            for step, right in enumerate(alone(torch.float16, 2.0**10, skipped=(1,))[:2]):
                loss = zero(data(step, world.rank)).float().square().mean()
                if step == 1 and world.rank == world.size - 1:
                    loss = loss * 1e9
                scaler.scale(loss).backward()
                norm = zero.clip(1e9) if clipped else 1.0
                zero.step()
                zero.zero_grad()
                mine = zero.state_dict().values()
                assert all(map(torch.equal, mine, right)), (stage, step)
                assert scaler.get_scale() == 2.0 ** (10 - step), stage
                assert (0 < norm < 1e3) == (step == 0 or not clipped)
        return True

    assert launch(work, 2) == [True] * 2


def test_a_rank_that_keeps_nothing_takes_part():
    def work(world):
        for stage in (1, 2, 3):
            scaler = LossScaler(init_scale=4.0)
            small = nn.Linear(1, 1).to(torch.float32)
            zero = Zero(small, ADAMW, stage, world, dtype=torch.float16, scaler=scaler)
            assert (len(zero.pieces()) == 0) == (world.rank == 2)
            before = zero.state_dict()
            for factor in (1.0, torch.inf):
                x = torch.ones(1, 1) * (factor if world.rank == 0 else 1.0)
                scaler.scale(zero(x).float().sum()).backward()
                assert zero.clip(5.0) > 0 or factor != 1.0
                zero.step()
                zero.zero_grad()
            assert scaler.get_scale() == 2.0
            after = zero.state_dict()
            assert all(bool(x.isfinite()) for x in after.values())
            assert not torch.equal(after["weight"], before["weight"])
        return True

    assert launch(work, 3) == [True] * 3


def test_fewer_elements_than_ranks_clip_together():
    def work(world):
        for stage in range(4):  # one element: its owner has all of it, and does not know less
            net = nn.Linear(1, 1, bias=False).double()
            net.weight.data.fill_(1.0)
            zero = Zero(net, partial(torch.optim.SGD, lr=1.0), stage, world)
            zero(torch.full((1, 1), float(world.rank), dtype=torch.float64)).sum().backward()
            assert zero.clip(0.25) == 1.0
            zero.step()
            assert abs(zero.state_dict()["weight"].item() - 0.75) < 1e-6
        return True

    assert launch(work, 3, timeout=30) == [True] * 3


def test_a_backward_after_a_look_at_the_norm_still_counts():
    def work(world):
        for stage in range(4):
            ends = []
            for looks in (False, True):
                zero = Zero(net(), ADAMW, stage, world, bucket=20, dtype=torch.bfloat16)
                for step in range(2):
                    zero(data(step, world.rank)).float().square().mean().backward()
                    if looks:
                        zero.clip(1e9)
                zero.step()
                ends.append(zero.state_dict().values())
            assert all(map(torch.equal, *ends)), stage
        return True

    assert launch(work, 2) == [True] * 2


def test_an_optimizer_with_masters_of_its_own_needs_no_dtype():
    def work(world):
        one = net().to(torch.bfloat16)
        optimizer = MasterAdam(one.parameters(), lr=0.01)
        many = Zero(net().to(torch.bfloat16), partial(MasterAdam, lr=0.01), 2, world, bucket=20)
        for step in range(3):
            for rank in range(2):
                (one(data(step, rank).bfloat16()).float().square().mean() / 2).backward()
            many(data(step, world.rank).bfloat16()).float().square().mean().backward()
            for each in (optimizer, many):
                each.step()
                each.zero_grad()
        for a, b in zip(one.parameters(), many.state_dict().values(), strict=True):
            assert torch.equal(a, b)
        return True

    assert launch(work, 2) == [True] * 2
