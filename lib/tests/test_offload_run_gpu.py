"""Weights that compute on a GPU and lie, with Adam's state, in host memory or in files."""

import pytest
import torch
from torch import nn

from weft.run.offload.layers import Streamed
from weft.run.offload.memory import Memory
from weft.run.offload.store import Store

PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
RATE = 0.01


def layers(dtype: torch.dtype) -> list[nn.Module]:
    torch.manual_seed(0)
    made = nn.Linear(7, 33), nn.Sequential(nn.Tanh(), nn.Linear(33, 33)), nn.Linear(33, 3)
    return [layer.to(dtype) for layer in made]


def batches(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    dice = torch.Generator().manual_seed(1)
    return [torch.randn(5, 7, generator=dice, dtype=dtype).to(device) for _ in range(4)]


def in_memory(device: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and weights where everything lies on the device."""
    model = nn.Sequential(*layers(torch.float64)).to(device)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=RATE), []
    for batch in batches(device, torch.float64):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {name: weight.detach().cpu() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("kind", ["memory", "files"])
def test_training_is_what_it_is_in_the_devices_memory(tmp_path, kind, device):
    losses, expected = in_memory(device)
    store = Memory() if kind == "memory" else Store(tmp_path, budget=2**18)
    model = Streamed([x.to(device) for x in layers(torch.float64)], store, lr=RATE)
    for batch, right in zip(batches(device, torch.float64), losses, strict=True):
        loss = model(batch).square().mean()
        loss.backward()
        model.step()
        assert loss.device.type == device and loss.item() == pytest.approx(right, rel=1e-12)
    found = {name: weight.clone() for name, weight in model.named_weights()}
    assert {weight.device.type for weight in found.values()} == {"cpu"}  # they lie in the store
    assert sorted(x.numel() for x in found.values()) == sorted(x.numel() for x in expected.values())
    for mine, right in zip(found.values(), expected.values(), strict=True):
        torch.testing.assert_close(mine.view_as(right), right, rtol=1e-12, atol=1e-12)
    if kind == "files":
        store.close()


@pytest.mark.gpu
def test_the_model_does_not_stay_on_the_gpu():
    """The device holds activations and the layers at work, not the model, let alone its states."""
    wide = [nn.Linear(2048, 2048).cuda() for _ in range(8)]
    whole = sum(weight.nbytes for layer in wide for weight in layer.parameters())
    model = Streamed(wide, Memory(), lr=RATE)
    x = torch.randn(4, 2048, device="cuda")
    for step in range(2):  # libraries take their own memory in the first
        if step:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        model(x).square().mean().backward()
        model.step()
    assert torch.cuda.max_memory_allocated() - before < whole
