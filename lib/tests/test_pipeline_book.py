"""What the chapter on pipelines tells its readers to type trains as one process does."""

import re
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.distributed import DeviceMesh

from weft.run.world import launch

MICROBATCHES, ROWS, WIDTH, LAYERS, LIMIT = 8, 3, 6, 9, 0.05


@pytest.fixture(scope="module")
def recipe(root):
    page = (root / "book/pipeline.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    return code


def test_the_recipe_is_short(recipe):
    for name in "pipeline", "train_step":
        body = recipe.split(f"def {name}(")[1].split("\ndef ")[0]
        assert 7 <= len([line for line in body.splitlines() if line.strip()]) <= 25


def one_process(layers, data):
    """Weights after steps of SGD on the whole batch, its gradient clipped, and the losses."""
    model, losses = nn.Sequential(*deepcopy(layers)), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for x, target in data:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        assert nn.utils.clip_grad_norm_(model.parameters(), LIMIT) > LIMIT
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def trained(world, recipe, name, v):
    """How far this rank's weights and losses are from those of one process, and how many it has."""
    names = {}
    exec(recipe, names)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
    data = torch.randn(2, 2, MICROBATCHES * ROWS, WIDTH)
    whole, expected = one_process(layers, data)
    group = DeviceMesh.from_group(world.group(), "cpu", mesh_dim_names=("pp",)).get_group()
    mse, device = nn.functional.mse_loss, torch.device("cpu")
    parts, stages, schedule = names["pipeline"](layers, name, v, MICROBATCHES, mse, device, group)
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.5)
    wrong = []
    for (x, target), loss in zip(data, expected, strict=True):
        found = names["train_step"](parts, stages, schedule, optimizer, x, target, group, LIMIT)
        assert (found is not None) == any(stage.is_last for stage in stages)
        wrong += [] if found is None else [abs(found.item() - loss)]
    wanted = list(whole.parameters())
    for weight, layer in zip(parts.parameters(), held(len(wanted) // LAYERS, stages), strict=True):
        wrong.append((weight - wanted[layer]).abs().max().item())
    return max(wrong), len(list(parts.parameters()))


def held(each, stages):
    """Which of the model's parameters a rank has, in its own order."""
    cuts = [LAYERS * s // stages[0].num_stages for s in range(stages[0].num_stages + 1)]
    for stage in stages:
        yield from range(each * cuts[stage.stage_index], each * cuts[stage.stage_index + 1])


@pytest.mark.parametrize(
    ("name", "v"),
    [
        ("GPipe", 1), ("1F1B", 1), ("Interleaved1F1B", 2), ("LoopedBFS", 2),
        ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 2), ("DualPipeV", 2),
    ],
)  # fmt: skip
def test_the_recipe_trains_as_one_process_does(recipe, name, v):
    found = launch(trained, 2, recipe, name, v, backend="gloo")
    assert sum(weights for _, weights in found) == 2 * LAYERS
    assert max(wrong for wrong, _ in found) < 1e-12


@pytest.mark.parametrize(("v", "gathers"), [(2, 2), (3, 3), (5, 23)])
def test_how_often_torch_gathers_stages_that_fsdp_shards(v, gathers):
    """It keeps three of a rank's stages whole, so more are gathered anew for each microbatch."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    actions = get_schedule_ops("Interleaved1F1B", 4, 16, num_stages_per_rank=v, with_comms=True)
    kinds = [action.computation_type.name for action in actions[0] if action is not None]
    assert kinds.count("UNSHARD") == gathers
    assert kinds.count("REDUCE_GRAD") == v


def test_what_torch_recomputes_when_it_splits_a_checkpointed_backward():
    """Four blocks of a norm and two linear layers: 24 matmuls whole, 48 in two halves."""
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.checkpoint import checkpoint

    class Recomputed(nn.Sequential):
        def forward(self, x):
            return x + checkpoint(super().forward, x, use_reentrant=False)

    def matmuls(call):
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            found = call()
        events = seen.key_averages()
        return found, sum(e.count for e in events if e.key in ("aten::mm", "aten::addmm"))

    def block():
        return Recomputed(nn.LayerNorm(6), nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))

    model, x = nn.Sequential(*(block() for _ in range(4))), torch.randn(4, 6, requires_grad=True)
    y = model(x)
    _, whole = matmuls(lambda: y.sum().backward())
    y = model(x)
    inputs = [y], [torch.ones_like(y)], [x], model.parameters()
    (_, groups), first = matmuls(lambda: stage_backward_input(*inputs))
    _, second = matmuls(lambda: stage_backward_weight(model.parameters(), groups))
    assert (whole, first, second) == (24, 16, 32)
