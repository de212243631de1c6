"""Every stage of ZeRO with its tensors on GPUs and NCCL between them; the same on a CPU."""

import sys
from functools import partial

import cloudpickle
import pytest
import torch
from torch import nn

from weft.run.world import launch
from weft.run.zero.wrap import Zero

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file

ADAM = partial(torch.optim.Adam, lr=0.01)


def model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 33), nn.Tanh(), nn.LayerNorm(33), nn.Linear(33, 3)).double()


def batches(n: int) -> torch.Tensor:
    dice = torch.Generator().manual_seed(2)
    return torch.randn(4, 2 * n, 5, generator=dice, dtype=torch.float64)


def alone(n: int) -> dict[str, torch.Tensor]:
    """The weights that one process comes to, on a CPU, with everybody's batches."""
    net = model()
    optimizer = ADAM(net.parameters())
    for batch in batches(n):
        net(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return net.state_dict()


def together(world) -> list[tuple[str, dict[str, torch.Tensor]]]:
    """Where this rank computed, and what the weights came to, under each stage."""
    found = []
    for stage in range(4):
        zero = Zero(model().to(world.device), ADAM, stage, world, bucket=100)
        for batch in batches(world.size):
            out = zero(batch[world.rank :: world.size].to(world.device))
            out.square().mean().backward()
            zero.step()
            zero.zero_grad()
        state = {name: weight.cpu() for name, weight in zero.state_dict().items()}
        found.append((out.device.type, state))
    return found


def check(n: int, device: str, backend: str) -> None:
    right = alone(n)
    for stages in launch(together, n, backend=backend):
        for kind, mine in stages:
            assert kind == device and mine.keys() == right.keys()
            for name, weight in right.items():
                assert (mine[name] - weight).abs().max() <= 1e-12, name


def test_two_ranks_on_a_cpu_come_to_the_same():
    check(2, "cpu", "gloo")


@pytest.mark.gpu
def test_ranks_on_gpus_come_to_the_same_over_nccl():
    check(torch.cuda.device_count(), "cuda", "nccl")
