"""What the chapter on precision tells its readers to type keeps fp32 where the page says so."""

import re
import sys
import warnings
from types import SimpleNamespace

import cloudpickle
import pytest
import torch
import torch._dynamo  # launch then has it loaded once, and not each rank
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from weft.run.world import launch

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file
WIDTH, WORDS = 16, 24


class Tower(nn.Module):
    """What the recipe's names stand for; it notes in which type each block computes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, WORDS)
        self.types = set()

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = x + block(x)
            self.types.add(x.dtype)
        return self.head(x)


def recipe(root):
    """The page's own code, run."""
    page = (root / "book/precision.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert 10 <= len([line for line in text.splitlines() if line.strip()]) <= 30
    return text


def rank_of(rank, text):
    """Two steps on a rank: losses, and in which types things are."""
    names, seen = {}, set()
    warnings.filterwarnings("ignore", message=".*returned a view tensor")  # none is written to
    exec(text, names)
    model = Tower()
    adam = names["prepare"](model, init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
    tokens = torch.arange(2 * 9).reshape(2, 9) % WORDS
    losses = []
    for _ in range(3):
        loss = names["loss_of"](model, tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        seen |= {p.grad.dtype for p in model.parameters()} | {loss.dtype}
        adam.step()
        adam.zero_grad()
        losses.append(loss.item())
    seen |= {x.dtype for s in adam.state.values() for x in s.values()}
    seen |= {p.dtype for p in model.parameters()}
    return losses, {str(t) for t in seen}, {str(t) for t in model.types}


@pytest.mark.parametrize("n", [1, 2])
def test_the_recipe_computes_in_bf16_and_keeps_everything_in_fp32(root, n):
    for losses, kept, computed in launch(rank_of, n, recipe(root), backend="gloo", timeout=300):
        assert kept == {"torch.float32"} and computed == {"torch.bfloat16"}
        assert losses[0] > losses[1] > losses[2]


def test_the_recipes_fp8_asks_for_layers_that_are_wide_and_not_the_head(root, monkeypatch):
    """torchao is not here: what is asked of it is noted."""
    asked = {}

    class Config:
        @staticmethod
        def from_recipe_name(name):
            asked["recipe"] = name

    def convert(model, config, module_filter_fn):
        layers = ("blocks.0", nn.Linear(4096, 8192, device="meta"))
        layers += ("blocks.1", nn.Linear(4096, 1024, device="meta"))
        layers += ("head", nn.Linear(4096, 8192, device="meta"))
        pairs = zip(layers[::2], layers[1::2], strict=True)
        asked["layers"] = [name for name, layer in pairs if module_filter_fn(layer, name)]
        raise StopIteration

    part = SimpleNamespace(Float8LinearConfig=Config, convert_to_float8_training=convert)
    monkeypatch.setitem(sys.modules, "torchao", SimpleNamespace(float8=part))
    names = {}
    exec(recipe(root), names)
    with pytest.raises(StopIteration):
        names["prepare"](None, None, fp8=True)
    assert asked == {"recipe": "rowwise", "layers": ["blocks.0"]}
