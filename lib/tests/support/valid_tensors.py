"""A right value for every argument of references, kernels and runtimes, as in valid_calls."""

import torch

from weft.meter import Sram
from weft.ref.experts import route
from weft.ref.tensor import vocabulary_part

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DICE = torch.Generator().manual_seed(0)


def some(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers around 0."""
    return torch.randn(shape, generator=DICE).to(DEVICE, dtype)


def heads(K: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """q, k and v of a short sequence."""
    return {name: some(1, 4, 2, K, dtype=dtype) for name in "qkv"}


def weights() -> list[torch.Tensor]:
    """One parameter, anew for each call."""
    return [torch.ones(4, device=DEVICE)]


LENGTHS = {
    "block_table": torch.tensor([[1, 0]]).to(DEVICE),
    "lengths": torch.tensor([5]).to(DEVICE),
}
CACHES = {"q": some(1, 1, 4, 16), "k_cache": some(2, 4, 2, 16), "v_cache": some(2, 4, 2, 16)}
ADAM = {name: lambda: weights() for name in ("weights", "gradients", "masters", "means", "squares")}
ADAM |= {
    "steps": lambda: [torch.zeros((), device=DEVICE)],
    "lr": 0.1,
    "betas": (0.9, 0.99),
    "eps": 1e-8,
}
ADAM |= {"weight_decay": 0.0}

BETWEEN = {"x": some(5, 3), "weight": some(3), "bias": some(3), "residual": some(5, 3),
           "gate": some(5, 3), "up": some(5, 3), "scores": some(5, 8), "first": 4, "last": 11,
           "targets": torch.tensor([4, 0, 10, 7, 11]).to(DEVICE), "lse": some(5) + 3,
           "slope": some(5)}  # fmt: skip
BETWEEN["parts"] = [vocabulary_part(BETWEEN["scores"], BETWEEN["targets"], 4, 11)]

VALUES = {
    "": heads(16) | CACHES.copy() | LENGTHS | ADAM,
    "ref.attention.": heads(16) | {"sram": Sram(10**6), "tile_q": 2, "tile_k": 2, "s": some(2, 3)}
    | {"o1": some(2, 3), "o2": some(2, 3), "lse1": some(2), "lse2": some(2)},
    "ref.hopper.": heads(16),
    "ref.experts.": {"scores": some(5, 4), "k": 2, "capacity": 3, "x": some(5, 3), "factor": 1.25,
                     "router": some(3, 4), "up": some(4, 3, 6), "down": some(4, 6, 3),
                     "routes": route(some(5, 4), k=2), "bias": some(4)}
    | route(some(5, 4), k=2)._asdict(),
    "ref.griffin.": {"x": some(2, 5, 3), "a_param": some(3), "initial": some(2, 3), "window": 2,
                     "input_gate": some(2, 5, 3).sigmoid(), "reset": some(2, 5) > 0,
                     "recurrence_gate": some(2, 5, 3).sigmoid(), "a": some(2, 5, 3).sigmoid()},
    "ref.tensor.": BETWEEN,
    "ref.linear.": heads(16) | {"feature": "relu", "initial": None, "chunk": 3, "causal": True},
    "ref.retention.": heads(16) | {"decay": [0.5, 0.75], "initial": some(1, 2, 16, 16)}
    | {"chunk": 3, "H": 2},
    "ref.sparse.": {"window": 2, "dilation": 1, "global_mask": some(1, 4) > 0, "block": 2,
                    "layout": torch.ones(1, 2, 2, dtype=torch.bool).to(DEVICE),
                    "blocks": 3, "globals": 1, "random": 1, "heads": 2, "seed": 0, "first": 1,
                    "local": 1, "top": 2, "index_q": some(1, 4, 2, 3), "index_k": some(1, 4, 3),
                    "weights": some(1, 4, 2)}
    | heads(16) | {f"global_{name}": x for name, x in heads(16).items()},
    "ref.precision.": {"dtype": torch.bfloat16, "x": some(4), "params": lambda: weights()},
    "kernels.attention.": heads(16) | {"target": "sm_90"},
    "kernels.hopper.": heads(64, torch.bfloat16) | {"target": "sm_90"},
    "kernels.decode.": {"target": "sm_90", "o": some(1, 4, 2, 16), "lse": some(1, 4, 2),
                        "dtype": torch.float32},
    "kernels.griffin.": {"a": some(2, 5, 3).sigmoid(), "x": some(2, 5, 3), "initial": some(2, 3),
                         "chunk": 2, "target": "sm_90", "only": ("scan",)},
    "kernels.experts.": {"x": some(5, 3), "w": some(2, 3, 4), "sizes": torch.tensor([3, 2]),
                         "up": some(4, 3, 6), "down": some(4, 6, 3), "target": "sm_90",
                         "capacity": 2}
    | route(some(5, 4), k=2)._asdict(),
    "kernels.experts.hopper.": {
        "x": some(5, 8).half(), "w": some(2, 8, 16).half(), "up": some(4, 8, 16).half(),
        "down": some(4, 16, 8).half(),
    },
    "kernels.tensor.": BETWEEN | {"target": "sm_90", "only": ("swiglu",)},
    "kernels.sparse.": {"window": 2, "dilation": 1, "global_mask": some(1, 4) > 0, "block": 2,
                        "layout": torch.ones(1, 2, 2, dtype=torch.bool).to(DEVICE)}
    | heads(16) | {f"global_{name}": x for name, x in heads(16).items()} | {"target": "sm_90"},
    "kernels.linear.": heads(16) | {"feature": "relu", "initial": None, "chunk": 3, "causal": True}
    | {"log_decay": -some(1, 4, 2).abs(), "target": "sm_90"},
    "kernels.retention.": heads(16) | {"decay": [0.5, 0.75], "initial": some(1, 2, 16, 16)}
    | {"chunk": 3},
    "kernels.linear.delta.": heads(16) | {
        "beta": 2 * some(1, 4, 2).sigmoid(), "log_decay": -some(1, 4, 2).abs(), "initial": None,
        "chunk": 3, "target": "sm_90",
    },
    "kernels.precision.": {"target": "sm_90"},
}  # fmt: skip
for _layer in ("ref", "kernels"):
    VALUES[f"{_layer}.tensor.cross_entropy."] = {"targets": BETWEEN["targets"].clamp(max=7)}
VALUES["ref.decode."] = VALUES["kernels.decode.paged_attention."] = CACHES
VALUES["kernels.decode.per_head."] = VALUES["kernels.decode.partials."] = CACHES
