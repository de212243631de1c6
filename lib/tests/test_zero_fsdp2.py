"""The chapter's recipe for FSDP2 trains as one process does, and FSDP2 sends what the plan says."""

import json
import os
import re
import subprocess
import sys
import warnings
from itertools import product
from pathlib import Path

import cloudpickle
import pytest
import torch
import torch._dynamo  # launch then has it loaded once, and not each rank
from torch import nn

from weft.meter import traffic
from weft.plan.memory.config import of_deepspeed
from weft.plan.zero.hybrid import fsdp2
from weft.run.world import launch

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file

PAGE = Path(__file__).parents[2] / "book/zero.md"
WIDTH, BLOCKS, STEPS = 8, 3, 3
PARAMS = BLOCKS * WIDTH * (WIDTH + 1)
SWITCHES = [
    {"reshard_after_forward": a, "reshard_after_backward": b, "gradient_sync": c, "all_reduce": d}
    for a, b, c, d in product((True, False), repeat=4)
]


def shown(language: str, name: str) -> str:
    """What the page shows under a name."""
    (found,) = re.findall(
        rf"^```\{{code-block\}} {language}\n:name: {name}\n(.*?)^```$",
        PAGE.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    return found


class Tower(nn.Module):
    """Blocks in a list, and something that belongs to none of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def loss_of(output, target):
    return (output - target).square().mean()


def batches(rank=0, ranks=1, microbatches=2):
    """For each step the microbatches of a rank: rows that no other has."""
    torch.manual_seed(5)
    found = torch.randn(STEPS, microbatches, 2, 8, WIDTH)
    return [[(x[rank::ranks], y[rank::ranks]) for x, y in step] for step in found]


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01, foreach=False)


def test_the_recipe_trains_as_one_process_does():
    source = shown("python", "zero-fsdp2")

    def work(world, dtype):
        warnings.simplefilter("ignore")
        names = {}
        exec(source, names)
        model = names["sharded"](Tower(), world.device.type, 2, 2, dtype)
        optimizer = adamw(model.parameters())
        steps = batches(world.rank, world.size)
        losses = [names["train_step"](model, optimizer, step, loss_of).item() for step in steps]
        return losses, {name: p.full_tensor() for name, p in model.named_parameters()}

    model = Tower()
    optimizer, losses = adamw(model.parameters()), []
    for step in batches():
        parts = [loss_of(model(x), target) / len(step) for x, target in step]
        sum(parts).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(parts).item())
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
        ranks = launch(work, 4, dtype, timeout=600)
        means = [sum(each) / 4 for each in zip(*(told for told, _ in ranks), strict=True)]
        assert means == pytest.approx(losses, rel=near)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(ranks[0][1][name], parameter.detach(), rtol=0, atol=near)


def test_the_recipe_is_a_whole_script(tmp_path):
    (tmp_path / "recipe.py").write_text(shown("python", "zero-fsdp2"))
    run = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "c10d"]
    run += ["--rdzv-endpoint", "localhost:0", "--nproc-per-node", "2", "recipe.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    assert len(shapes) == 10 and shapes["blocks.3.weight"] == (64, 64)
    assert shapes["head.weight"] == (1, 64) and all(x.isfinite().all() for x in state.values())


def test_a_model_without_memory_is_filled_from_a_file(tmp_path):
    torch.save(Tower().state_dict(), tmp_path / "model.pt")
    recipe, filling = shown("python", "zero-fsdp2"), shown("python", "zero-meta")

    def work(world):
        warnings.simplefilter("ignore")
        os.chdir(tmp_path)
        names = {"make": Tower, "device": world.device.type, "nodes": 2, "gpus": 2}
        exec(recipe, names)
        exec(filling, names)
        model = names["model"]
        local = sum(p.to_local().numel() for p in model.parameters())
        return local, {name: p.full_tensor() for name, p in model.named_parameters()}

    whole = dict(Tower().named_parameters())
    numel = sum(p.numel() for p in whole.values())
    for local, found in launch(work, 4, timeout=600):
        assert local == numel / 2
        for name, parameter in whole.items():
            torch.testing.assert_close(found[name], parameter.detach(), rtol=0, atol=0)


def test_torch_knows_what_the_page_names():
    from inspect import signature

    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torch.nn.functional import linear_cross_entropy

    page = PAGE.read_text(encoding="utf-8")
    methods = set(re.findall(r"`(set_[a-z_]+)(?:\(last\))?`", page)) - {"set_"}
    assert len(methods) == 5 and all(hasattr(FSDPModule, name) for name in methods)
    assert (
        "`shard_placement_fn`" in page and "shard_placement_fn" in signature(fully_shard).parameters
    )
    assert (
        "`linear_cross_entropy`" in page and "options" in signature(linear_cross_entropy).parameters
    )


def test_deepspeeds_file_is_stage_3_in_16_bits():
    found = of_deepspeed(json.loads(shown("json", "zero-deepspeed")))
    assert (found.stage, found.recipe, found.microbatch, found.live) == (3, "mixed", 1, 10**9)


def measured(world, mesh_shape, switches, microbatches):
    """Bytes that a rank sends in a step of FSDP2 with some switches, by operation."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    warnings.simplefilter("ignore")
    axes = ("replicate", "shard")[-len(mesh_shape) :]
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=axes)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = Tower().blocks
    how = {"reshard_after_forward": switches["reshard_after_forward"]}
    for block in model:
        fully_shard(block, mesh=mesh, mp_policy=policy, **how)
    model = nn.Sequential(*model)
    fully_shard(model, mesh=mesh, mp_policy=policy, **how)
    sent = {}
    for step in range(2):  # the second finds nothing that the first has left
        with traffic() as wire:
            for i in range(microbatches):
                last = i == microbatches - 1
                model.set_reshard_after_backward(last or switches["reshard_after_backward"])
                model.set_requires_gradient_sync(last or switches["gradient_sync"])
                model.set_requires_all_reduce(last or switches["all_reduce"])
                model(torch.ones(2, WIDTH)).sum().backward()
        sent[step] = dict(wire.bytes)
        for parameter in model.parameters():
            parameter.grad = None
    return sent


@pytest.mark.parametrize("mesh", [(4,), (2, 2)], ids=["sharded", "hybrid"])
def test_fsdp2_sends_what_the_plan_says(mesh):
    cases = [(SWITCHES[0], 1), *((switches, 3) for switches in SWITCHES)]
    if len(mesh) == 1:  # no replicas to average
        cases = [case for case in cases if case[0]["all_reduce"]]
        cases += [(switches | {"reshard_after_forward": 2}, 3) for switches in SWITCHES[:3:2]]
    found = launch(lambda world: [measured(world, mesh, *case) for case in cases], 4, timeout=600)[
        0
    ]
    for (switches, m), sent in zip(cases, found, strict=True):
        plan = fsdp2(PARAMS, mesh[-1], 4 // mesh[-1], m, **switches)
        expected = {
            "all_gather": plan.gathered,
            "reduce_scatter": plan.reduced,
            "all_reduce": plan.replicated,
        }
        for step in sent.values():
            told = {op: step.get(op, 0) for op in expected}
            assert told == expected, (switches, m)


def summed(world):
    """Elements that a rank keeps of gradients after each microbatch of HSDP: `.grad`, a sum."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    warnings.simplefilter("ignore")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(nn.Linear(WIDTH, 2 * WIDTH, bias=False), mesh=mesh)
    found = []
    for last in (False, False, True):
        model.set_requires_all_reduce(last)
        model(torch.ones(2, WIDTH)).sum().backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        partial = model._get_fsdp_state()._fsdp_param_group._partial_reduce_output
        kept = sum(grad.to_local().numel() for grad in grads)
        found.append((kept, 0 if partial is None else partial.numel()))
    return found


def test_replicas_that_wait_keep_one_sum_in_place_of_the_gradient():
    """So `kept` of the plan has it already."""
    shard = 2 * WIDTH * WIDTH // 2
    assert launch(summed, 4, timeout=600) == [[(0, shard), (0, shard), (shard, 0)]] * 4


def beside_ddp(world):
    """Bytes that a rank sends in a first step of DDP with a ZeroRedundancyOptimizer."""
    warnings.simplefilter("ignore")  # of the import, too
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2 * world.size)))
    parallel = nn.parallel.DistributedDataParallel(net, process_group=world.group())
    how = {"lr": 0.01, "process_group": world.group()}
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, **how)
    with traffic() as wire:
        parallel(torch.ones(2, WIDTH)).sum().backward()
        optimizer.step()
    return sum(wire.bytes.values()), sum(p.nbytes for p in net.parameters())


def test_ddps_stage_1_sends_as_much_as_stage_3():
    """All-reduces and, in place of an all-gather, broadcasts."""
    for sent, weights in launch(beside_ddp, 4, timeout=600):
        assert sent == 3 * weights * 3 // 4
