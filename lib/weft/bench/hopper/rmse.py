"""How far half precision and FP8 attention are from the truth: the FlashAttention-3 paper's table.

Emulated on whatever device torch has: matmuls of numbers of a low precision, added up in fp32. The
entries of Q, K and V are N(0, 1), and one in a thousand has N(0, 100) on top. The truth is fp64
attention of the numbers as they were drawn, before anything is rounded. The paper gives neither
length nor width nor the number of heads: 8448 and 128 are those of its ablation.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.ref.attention import attention
from weft.ref.hopper import attention as flash3
from weft.ref.hopper import attention_fp8, standard

# Shah et al. 2024, table 3: root mean squared errors.
PAPER = {
    "fp16, standard": 3.2e-4,
    "fp16, FlashAttention-3": 1.9e-4,
    "fp8, standard": 2.4e-2,
    "fp8, FlashAttention-3": 9.1e-3,
    "fp8, one scale per tensor": 9.3e-3,
    "fp8, not incoherent": 2.4e-2,
}


class SampleSizes(NamedTuple):
    """Queries, keys and width of a head, heads in one sample, and samples."""

    T: int = 192
    S: int = 8448
    K: int = 128
    heads: int = 8
    samples: int = 7


FULL = SampleSizes()


def table(run: BenchRun, sizes: SampleSizes = FULL) -> Found:
    """The paper's table, and ours."""
    found: dict[str, list[float]] = {name: [] for name in PAPER}
    for seed in run.each(range(sizes.samples), "sample {}"):
        for name, error in errors(sizes, seed).items():
            found[name].append(error)
    results = [Measurement.of(name, "weft", "1", values) for name, values in found.items()]
    results += [Measurement.of(name, "paper", "1", [value]) for name, value in PAPER.items()]
    title = (
        f"Root mean squared errors of attention with outliers: {sizes.heads} heads of {sizes.T} "
        f"queries and {sizes.S} keys, K = {sizes.K}, in each sample"
    )
    return title, results


ACCURACY = BenchJob("hopper-rmse", table)


def errors(sizes: SampleSizes, seed: int) -> dict[str, float]:
    """The root mean squared error of each method on one batch of heads."""
    dice = torch.Generator().manual_seed(seed)
    q, k, v = (outliers((1, n, sizes.heads, sizes.K), dice) for n in (sizes.T, sizes.S, sizes.S))
    signs = torch.randint(0, 2, (sizes.K,), generator=dice) * 2 - 1
    truth = attention(q, k, v)
    half, single = ([x.to(dtype) for x in (q, k, v)] for dtype in (torch.half, torch.float))
    found = {
        "fp16, standard": standard(*half),
        "fp16, FlashAttention-3": flash3(*half),
        "fp8, standard": standard(*half, fp8=True),
        "fp8, FlashAttention-3": attention_fp8(*single, signs=signs),
        "fp8, one scale per tensor": attention_fp8(*single, signs=signs, blocks=False),
        "fp8, not incoherent": attention_fp8(*single),
    }
    return {name: rmse(found[name], truth) for name in PAPER}


def outliers(shape: tuple[int, ...], dice: torch.Generator) -> Tensor:
    """Normal numbers, of which one in a thousand has a ten times wider one added; fp64."""
    plain, wide = (torch.randn(shape, generator=dice, dtype=torch.float64) for _ in range(2))
    return plain + 10 * wide * (torch.rand(shape, generator=dice) < 0.001)


def rmse(found: Tensor, truth: Tensor) -> float:
    """The root of the mean squared difference."""
    return float((found.double() - truth).square().mean().sqrt())
