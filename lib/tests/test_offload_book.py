"""What the offload chapter tells its readers to type trains as plain PyTorch does."""

import inspect
import re

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import mse_loss

from weft.run.world import launch


@pytest.fixture(scope="module")
def recipe(root) -> str:
    page = (root / "book/offload.md").read_text(encoding="utf-8")
    return re.search(r"^:name: offload-recipe-code\n(.*?)^```$", page, re.M | re.S)[1]


def toy() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.blocks = nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)))
    model.head = nn.Linear(6, 1)
    return model


def batches(step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(step))
    return [(part, part.sum(-1, keepdim=True)) for part in x]


def trained(world, recipe: str) -> list[torch.Tensor]:
    names = {"__name__": "recipe"}
    exec(recipe, names)
    model, mesh = toy(), init_device_mesh("cpu", (world.size,))
    optimizer = names["offloaded"](model, mesh, torch.float32)
    for step in range(3):  # all ranks with the same batch: its mean is as one rank's
        names["train_step"](model, optimizer, batches(step), mse_loss)
    return [weight.full_tensor().detach() for weight in model.parameters()]


def test_the_recipe_trains_as_one_process_does(recipe):
    model = toy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(3):
        for x, target in batches(step):
            (mse_loss(model(x), target) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    for weights in launch(trained, 2, recipe, backend="gloo"):
        for one, other in zip(weights, model.parameters(), strict=True):
            torch.testing.assert_close(one, other.detach(), atol=1e-6, rtol=1e-5)


def test_the_recipe_is_short(recipe):
    functions = recipe.split("if __name__")[0].partition("\ndef ")[2]
    assert 10 <= len([line for line in functions.splitlines() if line.strip()]) <= 25


def test_the_update_is_timed_as_the_page_says(root, capsys):
    page = (root / "book/offload.md").read_text(encoding="utf-8")
    code = re.search(r"^:name: offload-measure-code\n(.*?)^```$", page, re.M | re.S)[1]
    assert "n = 10**9\n" in code
    exec(code.replace("10**9", "10**4"), {"__name__": "measure"})
    assert len(re.findall(r"clip [\d.]+ s, Adam [\d.]+, zeroing", capsys.readouterr().out)) == 3


def test_torch_has_what_the_page_names():
    takes = inspect.signature(torch.autograd.graph.save_on_cpu.__init__).parameters
    assert "pin_memory" in takes
    from torch.distributed.fsdp import CPUOffloadPolicy

    assert CPUOffloadPolicy().pin_memory is True
