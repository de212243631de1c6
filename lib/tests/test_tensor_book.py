"""What the chapter on tensor parallelism tells its readers to type is the model in one process."""

import re

import pytest
import torch
from torch import nn
from torch.distributed import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from weft.run.world import launch

D, K, HEADS, GROUPS, F, N = 24, 6, 4, 2, 20, 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(D, HEADS * K, bias=False)
        self.k, self.v = (nn.Linear(D, GROUPS * K, bias=False) for _ in range(2))
        self.out = nn.Linear(HEADS * K, D, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(K), nn.RMSNorm(K)

    def forward(self, x):
        q, k, v = (
            layer(x).unflatten(-1, (-1, K)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        q, k = self.q_norm(q), self.k_norm(k)
        o = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(o.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(D, F, bias=False) for _ in range(2))
        self.down = nn.Linear(F, D, bias=False)

    def forward(self, x):
        return self.down(silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(D), nn.RMSNorm(D)
        self.attention, self.mlp = Attention(), MLP()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """What the recipe's names stand for."""

    def __init__(self, tied):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(N, D), nn.RMSNorm(D)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(D, N, bias=False)
        for name, weight in self.named_parameters():
            if "norm" in name:  # so that which head or channel it meets is seen
                nn.init.normal_(weight)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@pytest.fixture(scope="module")
def page(root):
    return (root / "book/tensor.md").read_text(encoding="utf-8")


def recipe(page):
    """The names that the page's recipe defines."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    for function in ("tensor_parallel", "loss_and_gradients"):
        body = code.split(f"def {function}(")[1].split("\ndef ")[0]
        assert 7 <= len([line for line in body.splitlines() if line.strip()]) <= 25
    names = {}
    exec(code, names)
    return names


def over_ranks(world, page, tied):
    """How far loss, norm, gradients and weights after steps are from those of one process."""
    names = recipe(page)
    torch.manual_seed(0)
    alone = Decoder(tied).double()
    model = Decoder(tied).double()
    model.load_state_dict(alone.state_dict())
    mesh = DeviceMesh.from_group(world.group(), "cpu", mesh_dim_names=("tp",))
    names["tensor_parallel"](model, mesh)
    if tied:
        assert model.head.weight is not model.tokens.weight  # as the page warns
        exec(tying(page), {"model": model})
    pairs = list(zip(model.parameters(), alone.parameters(), strict=True))
    steps = [torch.optim.AdamW(x.parameters(), lr=0.1) for x in (model, alone)]
    wrong = []
    for _ in range(3):
        tokens, targets = torch.randint(N, (2, 3, 8))
        mean = cross_entropy(alone(tokens).flatten(0, 1), targets.flatten())
        mean.backward()
        norm = nn.utils.clip_grad_norm_(alone.parameters(), 1.0)
        found = names["loss_and_gradients"](model, tokens, targets)
        wrong += [(found[0] - mean).abs().item(), (found[1] - norm).abs().item()]
        for one, other in pairs:
            wrong.append((one.grad.full_tensor() - other.grad).abs().max().item())
        for step in steps:
            step.step()
            step.zero_grad()
        for one, other in pairs:
            wrong.append((one.full_tensor() - other).abs().max().item())
    kept = model.blocks[0].mlp.up.weight.to_local().numel()
    return max(wrong), kept


def tying(page):
    """The line that the page gives for a head that is the embedding."""
    (line,) = re.findall(r"`(model\.head\.weight = .*?)`", page)
    return line


@pytest.mark.parametrize("tied", [False, True])
def test_the_recipe_is_one_process_with_gradients_and_their_norm(page, tied):
    for wrong, kept in launch(over_ranks, 2, page, tied, backend="gloo"):
        assert wrong < 1e-8
        assert kept == D * F // 2


def first_weights(world, page):
    """Which rank's first weights there are after cutting, and after sharding, by name."""
    mesh = DeviceMesh.from_group(world.group(), "cpu", mesh_dim_names=("tp",))
    models = []
    for seed in range(world.size):
        torch.manual_seed(seed)
        models.append(Decoder(tied=False))
    cut = Decoder(tied=False)
    cut.load_state_dict(models[world.rank].state_dict())
    recipe(page)["tensor_parallel"](cut, mesh)
    layer = nn.Linear(4, 6, bias=False)
    nn.init.constant_(layer.weight, world.rank)
    fully_shard(layer, mesh=mesh)
    found = {name: weight.to_local() for name, weight in cut.named_parameters()}
    up, norm = "blocks.0.mlp.up.weight", "norm.weight"
    parts = [model.state_dict()[up].chunk(world.size)[world.rank] for model in models]
    norms = [model.state_dict()[norm] for model in models]
    whose = [[found[up].equal(x) for x in parts], [found[norm].equal(x) for x in norms]]
    return [one.index(True) for one in whose], layer.weight.to_local().unique().tolist()


def test_first_weights_are_rank_0s_where_cut_and_elsewhere_a_ranks_own(page):
    assert launch(first_weights, 2, page, backend="gloo") == [([0, 0], [0]), ([0, 1], [1])]
