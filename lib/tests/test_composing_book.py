"""What the chapter on composing tells its readers to type trains as one process does."""

import re
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from weft.meter import traffic
from weft.run.world import launch

MICROBATCHES, ROWS, WIDTH = 3, 6, 16


@pytest.fixture(scope="module")
def recipe(root):
    page = (root / "book/composing.md").read_text(encoding="utf-8")
    found = re.search(r"^:name: composing-recipe\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return found[1]


def test_the_recipe_is_short(recipe):
    for name in "parallel", "train_step":
        body = re.search(rf"^def {name}\(.*?\n\n\n", recipe, re.MULTILINE | re.DOTALL)[0]
        assert len([line for line in body.splitlines() if line.strip()]) <= 16
    assert 10 <= len(re.findall(r"^    \S", recipe, re.MULTILINE)) <= 60


def one_process(blocks, data):
    """Weights after steps of SGD on the whole batch."""
    model = nn.Sequential(*deepcopy(blocks))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, target in data:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
    return model


def trained(world, recipe):
    """How far this rank's weights are from those of one process, and how many it has."""
    names = {}
    exec(recipe, names)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    blocks = [names["Block"](WIDTH) for _ in range(4)]
    data = torch.randn(2, 2, 2 * ROWS, WIDTH)  # steps, inputs and targets, both replicas' rows
    whole = one_process(blocks, data)
    make, step = names["parallel"], names["train_step"]
    mse, device = nn.functional.mse_loss, torch.device("cpu")
    mesh, model, schedule = make(blocks, (2, 2, 2), MICROBATCHES, mse, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert mesh.mesh.flatten().tolist() == list(range(8))  # the last name turns fastest
    replica, stage = mesh["dp"].get_local_rank(), mesh["pp"].get_local_rank()
    for x, target in data:
        with traffic() as wire:
            step(mesh, schedule, optimizer, x.chunk(2)[replica], target.chunk(2)[replica])
    summed = wire.calls["reduce_scatter"]
    wanted = dict(nn.Sequential(*whole[2 * stage : 2 * stage + 2]).named_parameters())
    found = {name: p.full_tensor() if isinstance(p, DTensor) else p.detach()
             for name, p in model.named_parameters()}  # fmt: skip
    wrong = max((found[name] - p).abs().max().item() for name, p in wanted.items())
    return wrong, summed, len(found), sum(isinstance(p, DTensor) for p in model.parameters())


def test_the_recipe_trains_as_one_process_does(recipe):
    for wrong, summed, weights, sharded in launch(trained, 8, recipe, backend="gloo"):
        assert summed == 2  # once for each block, not with every microbatch
        assert weights == 12 and sharded == weights
        assert wrong < 1e-12
