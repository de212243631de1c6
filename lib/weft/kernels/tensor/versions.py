"""The layers between two cut matrices before they were fused, with the same arguments and results.

"plain" is torch's operations one by one: each reads and writes whole tensors, most of them in
fp32. "apart" is a kernel for each step: the sum before the norm, the maximum before the sum of
exponentials. What each moves, weft.plan.tensor counts.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.code import launch
from weft.kernels.tensor.cross_entropy import scores_gradient, vocabulary_part
from weft.kernels.tensor.norm import rms_norm
from weft.kernels.tensor.rows import in_rows, kernel_tensors, load_part, view
from weft.kernels.tensor.swiglu import swiglu
from weft.plan.tensor import VocabularyPart, check_norm, check_part, check_swiglu

PIECE = 2**12  # scores of a row that a program holds at once


def plain_norm(
    x: Tensor, weight: Tensor, residual: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """`rms_norm` in torch's operations."""
    check_norm(x, weight, None, residual, eps)
    total = x if residual is None else x + residual
    s = total.float()
    n = s * (s.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (n * weight.float()).to(x.dtype), total


def norm_apart(
    x: Tensor, weight: Tensor, residual: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """`rms_norm` of a sum that is a kernel of its own."""
    check_norm(x, weight, None, residual, eps)
    return rms_norm(x if residual is None else x + residual, weight, eps=eps)


def plain_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """`swiglu` in two of torch's operations; what is between them is rounded, written and read."""
    check_swiglu(gate, up)
    return torch.nn.functional.silu(gate) * up


def plain_part(
    scores: Tensor, targets: Tensor, first: int = 0, last: int | None = None
) -> VocabularyPart:
    """`vocabulary_part` in torch's operations."""
    words = check_part(scores, targets, first, last)
    s = scores[..., :words].float()
    most = s.amax(-1)
    sums = (s - most.unsqueeze(-1)).exp().sum(-1)
    own = (targets >= first) & (targets < first + words)
    at = (targets - first).where(own, 0).unsqueeze(-1)
    return VocabularyPart(most, sums, s.gather(-1, at).squeeze(-1) * own)


def part_apart(
    scores: Tensor, targets: Tensor, first: int = 0, last: int | None = None
) -> VocabularyPart:
    """`vocabulary_part` in a pass for the maximum and another for the sum."""
    words = check_part(scores, targets, first, last)
    kernel_tensors(scores=scores)
    own = scores.detach()[..., :words]
    most, x = own.amax(-1).float(), in_rows(own)
    sums = torch.empty_like(most)
    launch("sums", sums_kernel, (len(x),), view(x), most, sums, words, PIECE=PIECE)
    found = (targets >= first) & (targets < first + words)
    at = (targets - first).where(found, 0).unsqueeze(-1)
    return VocabularyPart(most, sums, own.gather(-1, at).squeeze(-1).float() * found)


def plain_gradient(
    scores: Tensor,
    targets: Tensor,
    lse: Tensor,
    slope: Tensor,
    first: int = 0,
    last: int | None = None,
) -> Tensor:
    """`scores_gradient` in torch's operations."""
    words = check_part(scores, targets, first, last)
    odds = (scores[..., :words].float() - lse.unsqueeze(-1)).exp()
    own = (targets >= first) & (targets < first + words)
    at = (targets - first).where(own, 0).unsqueeze(-1)
    odds.scatter_add_(-1, at, -own.float().unsqueeze(-1))
    gradient = (odds * slope.unsqueeze(-1)).to(scores.dtype)
    padding = scores.shape[-1] - words
    return torch.nn.functional.pad(gradient, (0, padding)) if padding else gradient


@triton.jit
def sums_kernel(scores, most, sums, words, PIECE: tl.constexpr):
    """A row's sum of exponentials beside its maximum, which is known."""
    i = tl.program_id(0).to(tl.int64)
    b_most, b_sum = tl.load(most + i), tl.zeros([PIECE], tl.float32)
    for start in range(0, words, PIECE):
        o_n = start + tl.arange(0, PIECE)
        b_odds = tl.exp(load_part(scores, i, o_n, o_n < words) - b_most)
        b_sum += tl.where(o_n < words, b_odds, 0.0)
    tl.store(sums + i, tl.sum(b_sum, 0))


VERSIONS: dict[str, dict[str, Callable]] = {
    "rms_norm": {"plain": plain_norm, "apart": norm_apart, "fused": rms_norm},
    "swiglu": {"plain": plain_swiglu, "fused": swiglu},
    "vocabulary_part": {"plain": plain_part, "apart": part_apart, "fused": vocabulary_part},
    "scores_gradient": {"plain": plain_gradient, "fused": scores_gradient},
}
