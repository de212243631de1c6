"""A right value for every argument of the runtimes, on one rank, as in valid_calls."""

from itertools import count

import torch
from torch import nn

from weft.nn.experts import SwitchMLP
from weft.nn.transformer import Config, stages
from weft.plan.collectives import ring_all_reduce
from weft.plan.composing import Layout
from weft.plan.pipeline import gpipe
from weft.plan.simulate import simulate
from weft.run.experts import ExpertParallel
from weft.run.offload import Memory
from weft.run.tensor import parallelize
from weft.run.world import World
from weft.run.zero import Zero


def adam(params) -> torch.optim.Optimizer:
    """What a caller gives as an optimizer."""
    return torch.optim.Adam(params)


def linear() -> nn.Module:
    """A small module, anew for each call."""
    return nn.Linear(4, 4)


def squared(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A loss."""
    return ((output - target) ** 2).mean()


def alone(world: World) -> int:
    """What a rank does."""
    return world.rank


def told() -> tuple[int, dict]:
    """What a rank tells the others."""
    return 1, {}


def switch(world: World) -> nn.Module:
    """A layer of experts, anew for each call."""
    return ExpertParallel(SwitchMLP(4, 8, 2), world)


def decoder() -> nn.Module:
    """One stage of the book's decoder."""
    return stages(Config(layers=1, width=4, heads=2, vocab=8, seq=3), 1)[0]


def values(world: World) -> dict:
    """The values, for a world of one rank; folders are made where the rank is."""
    names = count()
    rows = torch.ones(2, 4)
    pairs = [(rows, rows), (rows, rows)]
    state = {"masters": lambda: [torch.zeros(4)], "means": lambda: [torch.zeros(4)]}
    state |= {"gradients": lambda: [torch.ones(4)], "squares": lambda: [torch.zeros(4)]}
    how = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0}
    zero = Zero(linear(), adam, 1, world)
    return {
        "": {
            "tensor": lambda: rows.clone(), "world": world,
            "folder": lambda: f"folder{next(names)}",
            "plan": gpipe(1, 2), "stages": lambda: [linear()], "microbatches": pairs,
            "loss": squared, "module": lambda: linear(), "optimizer": adam, "stage": 1,
            "zero": zero,
            "step": 0, "in_features": 4, "out_features": 4, "tiles": 2, "fn": alone, "n": 1,
            "args": (), "rank": 0, "size": 1, "device": torch.device("cpu"),
            "_group": world.group(),
            "timeline": simulate(gpipe(1, 2)), "params": lambda: [nn.Parameter(torch.ones(4))],
            "f": 1.0, "layers": lambda: [linear(), linear()], "store": lambda: Memory(),
        },
        "run.world.launch.": {"timeout": 300.0},
        "run.offload.update.": state | {"steps": [1], "how": how},
        "run.collectives.run.": {
            "steps": ring_all_reduce(1), "held": lambda: {0: torch.ones(4)},
        },
        "run.collectives.agreed.": {"mine": told},
        "run.experts.": {
            "mlp": SwitchMLP(4, 8, 2), "data": world, "module": lambda: switch(world),
            "state": SwitchMLP(4, 8, 2).state_dict(), "rate": 0.001,
        },
        "run.experts.whole_optimizer.": {"optimizer": adam([nn.Parameter(torch.ones(2))])},
        "run.experts.load_optimizer.": {
            "optimizer": adam([nn.Parameter(torch.ones(2))]),
            "state": adam([nn.Parameter(torch.ones(2))]).state_dict(),
        },
        "run.tensor.": {
            "linear": linear(), "module": lambda: parallelize(decoder(), world),
            "state": decoder().state_dict(), "scores": torch.ones(1, 3, 8),
            "targets": torch.zeros(1, 3, dtype=torch.long),
        },
        "run.tensor.parallelize.": {"module": decoder()},
        "run.composing.": {
            "config": Config(layers=1, width=4, heads=2, vocab=8, seq=3), "layout": Layout(),
            "batch": torch.zeros(2, 1, 3, dtype=torch.long).unbind(),
        },
        "run.composing.microbatches.": {"batch": 1, "seq": 3},
        "run.linear.": {name: torch.ones(1, 3, 2, 4) for name in "qkv"},
        "run.ring.": {name: torch.ones(1, 3, 2, 4) for name in "qkvx"},
    }  # fmt: skip
