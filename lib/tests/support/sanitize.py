"""Runs each kernel once at small odd sizes and compares: what a GPU's sanitizers are to watch.

    compute-sanitizer --tool memcheck python lib/tests/support/sanitize.py
    python lib/tests/support/sanitize.py attention decode

Whatever can be is done on the processor, so that the tool has nothing but our kernels to watch.
Nothing is cached between allocations, so a read beyond the end of a tensor is one.
"""

import os
import sys

os.environ.setdefault("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")

import torch
from decode_cases import paged
from torch import Tensor

from weft.kernels import decode, experts, hopper, precision
from weft.kernels.attention import fa1, naive
from weft.kernels.attention.face import attention
from weft.kernels.experts import hopper as experts_hopper
from weft.ref.attention.exact import attention as reference
from weft.ref.decode import paged_attention
from weft.ref.experts import route
from weft.ref.precision import adam

HALF = torch.bfloat16
NEAR = 0.02  # relative error, root of the mean square; rounding to bf16 makes about 0.005


def demand_near(what: str, got: Tensor, right: Tensor) -> None:
    """An AssertionError if they differ by more than rounding, or are not finite."""
    got, right = got.detach().cpu().double(), right.detach().double()
    assert got.isfinite().all(), f"{what} is not finite"
    error = float((got - right).norm() / right.norm().clamp(min=1e-9))
    assert error <= NEAR, f"{what} is wrong by {error:.3g} of the result"


def drawn(shapes, dtype=HALF) -> list[Tensor]:
    """Random numbers that the type holds exactly, in float64 on the processor."""
    dice = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=dice).to(dtype).double() for shape in shapes]


def compared(what: str, face, device: str, T, S, H, G, K, V, causal=True, back=True):
    """One forward and one backward pass of a face beside the definition."""
    B = 1
    *inputs, do = drawn([(B, T, H, K), (B, S, G, K), (B, S, G, V), (B, T, H, V)])
    exact = [x.requires_grad_(back) for x in inputs]
    right = reference(*exact, causal=causal)
    ours = [x.detach().to(device, HALF).requires_grad_(back) for x in inputs]
    o = face(*ours, causal=causal)
    demand_near(f"{what}: o", o, right)
    if back:
        grads = torch.autograd.grad(o, ours, do.to(device, HALF))
        rights = torch.autograd.grad(right, exact, do)
        for name, mine, wanted in zip(("dq", "dk", "dv"), grads, rights, strict=True):
            demand_near(f"{what}: {name}", mine, wanted)


def run_attention(device: str) -> None:
    """FlashAttention-2, both passes: ragged tiles, shared heads, widths that are padded."""
    compared("attention", attention, device, 35, 67, 2, 1, 40, 24)
    compared("attention, full", attention, device, 33, 17, 1, 1, 64, 64, causal=False)


def run_attention_versions(device: str) -> None:
    """The slower versions."""
    for module in (naive, fa1):
        compared(module.__name__, module.attention, device, 35, 67, 1, 1, 32, 32, back=False)


def run_decode(device: str) -> None:
    """Paged decoding by both kernels, cut into pieces too, with poison in every free slot."""
    for lengths, block, H, G, K, V in (([3, 41, 0], 4, 6, 2, 40, 24), ([70], 16, 8, 1, 64, 64)):
        arguments, _ = paged(lengths, block, H, G, K, V, dtype=HALF)
        wide = [x.double() if x.is_floating_point() else x for x in arguments]
        right = paged_attention(*wide)
        given = [x.to(device) for x in arguments]
        demand_near("decode", decode.paged_attention(*given), right)
        demand_near("decode, a program per head", decode.per_head(*given), right)
        o, lse = decode.partials(*given, None, 3)
        demand_near("decode, in pieces", decode.merge(o, lse, HALF), right)


def run_adam(device: str) -> None:
    """Adam's step on tensors that end within a block, one launch for all and one for each."""
    shapes = [(7, 3), (1,), (2100,), (13,)]
    how = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}
    for kernel in (precision.adam, precision.per_tensor):
        masters, means, gradients = (drawn(shapes, torch.float32) for _ in range(3))
        squares = [x.square() for x in means]
        steps = [torch.tensor(3.0, dtype=torch.float64) for _ in shapes]
        weights = [x.clone() for x in masters]
        lists = weights, gradients, masters, means, squares, steps
        here = [[x.float().to(device) for x in one] for one in lists]
        here[0] = [x.to(HALF) for x in here[0]]
        kernel(*here, **how)
        adam(*lists, **how)
        for mine, right in zip(here[2], masters, strict=True):
            demand_near(f"{kernel.__name__}: masters", mine, right)
        for mine, right in zip(here[0], masters, strict=True):
            demand_near(f"{kernel.__name__}: weights", mine, right)


def run_hopper(device: str) -> None:
    """FlashAttention-3, both passes, where there is a Hopper GPU or the interpreter."""
    if device == "cuda" and torch.cuda.get_device_capability()[0] != 9:
        print("hopper: this GPU is no Hopper")
        return
    compared("hopper", hopper.attention, device, 67, 131, 4, 2, 64, 64)
    compared("fused", hopper.fused, device, 67, 131, 2, 2, 128, 128)
    for version in (hopper.simple, hopper.specialized, hopper.pingpong):
        compared(version.__name__, version, device, 67, 131, 2, 2, 128, 128, back=False)


def run_experts(device: str) -> None:
    """The experts' MLP with its gradients: a nearly idle expert, and choices that are dropped."""
    T, D, E, F, k = 40, 72, 4, 40, 2
    x, scores, up, down, dy = drawn([(T, D), (T, E), (E, D, F), (E, F, D), (T, D)])
    routes = route(scores - 9 * (torch.arange(E) == 2), k, capacity=16)
    exact = [one.requires_grad_() for one in (x, up, down)]
    right = experts.looped(x, routes.expert, routes.weight, routes.kept, up, down)
    rights = right, *torch.autograd.grad(right, exact, dy)
    faces = {"experts": experts.mlp}
    if device == "cpu" or torch.cuda.get_device_capability()[0] == 9:
        faces["experts on Hopper"] = experts_hopper.mlp
    for what, face in faces.items():
        ours = [one.detach().to(device, HALF).requires_grad_() for one in exact]
        expert, weight, kept = (one.to(device) for one in (routes[0], routes[1], routes[3]))
        y = face(ours[0], expert, weight.float(), kept, *ours[1:])
        found = y, *torch.autograd.grad(y, ours, dy.to(device, HALF))
        for name, mine, wanted in zip(("y", "dx", "dup", "ddown"), found, rights, strict=True):
            demand_near(f"{what}: {name}", mine, wanted)


RUNS = {
    name.removeprefix("run_"): run
    for name, run in list(globals().items())
    if name.startswith("run_")
}


def main(names: list[str], device: str) -> None:
    """Run what is named, or all."""
    for name in names or RUNS:
        if name not in RUNS:
            raise SystemExit(f"{name} is none of {', '.join(RUNS)}")
        RUNS[name](device)
        print(f"{name}: right", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:], "cuda" if torch.cuda.is_available() else "cpu")
