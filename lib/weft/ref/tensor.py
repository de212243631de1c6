"""What tensor parallelism leaves on each rank: norms with their residual, SwiGLU, and the loss.

Everything is computed in fp32 at least and rounded once. `vocabulary_part` is what a rank knows of
each token from its own words' scores, `merge` what all know together: three numbers for a token
instead of a row of scores. Padding columns count as -inf. ValueError names an argument that does
not fit.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.plan.arguments import instance
from weft.plan.tensor import VocabularyPart, check_norm, check_part, check_swiglu, check_words
from weft.plan.tensors import tensor


def rms_norm(
    x: Tensor, weight: Tensor, residual: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """y = weight * s / sqrt(mean(s^2) + eps) of s = x + residual, and s, the new residual.

    x and residual [.., D], weight [D]. s is rounded to x's dtype before it is normalized, as the
    next layer will see it; it is x itself where residual is None. Zhang and Sennrich 2019.
    """
    check_norm(x, weight, None, residual, eps)
    total = _summed(x, residual)
    s = _wide(total)
    y = s * (s.square().mean(-1, keepdim=True) + float(eps)).rsqrt() * weight.to(s.dtype)
    return y.to(x.dtype), total


def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """y = weight * (s - mean) / sqrt(variance + eps) + bias of s = x + residual, and s.

    As `rms_norm`; bias [D]. Ba et al. 2016.
    """
    check_norm(x, weight, bias, residual, eps)
    total = _summed(x, residual)
    s = _wide(total)
    s = s - s.mean(-1, keepdim=True)
    y = s * (s.square().mean(-1, keepdim=True) + float(eps)).rsqrt() * weight.to(s.dtype)
    return (y if bias is None else y + bias.to(s.dtype)).to(x.dtype), total


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate * sigmoid(gate) * up, both [.., F]. Shazeer 2020."""
    check_swiglu(gate, up)
    wide = _wide(gate)
    return (wide * wide.sigmoid() * _wide(up)).to(gate.dtype)


# --- the cross-entropy over a part of the vocabulary ----------------------------------------------


def vocabulary_part(
    scores: Tensor, targets: Tensor, first: int = 0, last: int | None = None
) -> VocabularyPart:
    """Of each token's scores [.., N] for words first to last - 1: maximum, sum, target's score.

    Columns from last - first on are padding. `targets` [..] are words of the whole vocabulary.
    """
    words = check_part(scores, targets, first, last)
    s = _wide(scores[..., :words])
    beside = s.new_full((*targets.shape, 1), -torch.inf)  # so that there is a maximum of no words
    most = torch.cat([s, beside], -1).amax(-1)
    sums = (s - _finite(most).unsqueeze(-1)).exp().sum(-1)
    hit = targets.unsqueeze(-1) == torch.arange(words, device=s.device) + first
    return VocabularyPart(most, sums, s.masked_fill(~hit, 0).sum(-1))


def merge(parts: Sequence[VocabularyPart]) -> VocabularyPart:
    """What is known of each token's scores for the words of all parts, no word in two of them."""
    if not isinstance(parts, list | tuple) or not parts:
        raise ValueError(f"parts is {parts!r:.40}, must be at least one VocabularyPart")
    for part in parts:
        instance(VocabularyPart, parts=part)
    most = torch.stack([part.most for part in parts]).amax(0)
    sums = [part.sums * (part.most - _finite(most)).exp() for part in parts]
    return VocabularyPart(most, sum(sums), sum(part.target for part in parts))


def scores_gradient(
    scores: Tensor,
    targets: Tensor,
    lse: Tensor,
    slope: Tensor,
    first: int = 0,
    last: int | None = None,
    in_place: bool = False,
) -> Tensor:
    """slope * (exp(score - lse) - [is the target]): what flows back into scores, 0 in padding.

    Arguments as of `vocabulary_part`; `lse` [..] is the whole vocabulary's, `slope` [..] or []
    the loss's gradient. `in_place` overwrites scores and returns them.
    """
    words = check_part(scores, targets, first, last)
    for name, value, shapes in (
        ("lse", lse, [targets.shape]), ("slope", slope, [targets.shape, ()]),
    ):  # fmt: skip
        tensor(name, value, "[..] of scores", *shapes, beside=("scores", scores))
    s = _wide(scores[..., :words])
    hit = targets.unsqueeze(-1) == torch.arange(words, device=s.device) + first
    slope = slope.to(s.dtype).expand(targets.shape)
    odds = (s - lse.to(s.dtype).unsqueeze(-1)).exp()
    gradient = scores.detach() if in_place else torch.empty_like(scores)
    gradient[..., :words] = slope.unsqueeze(-1) * (odds - hit.to(s.dtype))
    gradient[..., words:] = 0
    return gradient


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of scores [.., N] of the whole vocabulary; of no token, none."""
    words = check_part(scores, targets)
    if not targets.numel():
        raise ValueError(f"targets have shape {list(targets.shape)}, must have at least one token")
    check_words("targets", targets, words)
    return vocabulary_part(scores, targets).loss.mean()


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _summed(x: Tensor, residual: Tensor | None) -> Tensor:
    return x if residual is None else (_wide(x) + _wide(residual)).to(x.dtype)


def _finite(most: Tensor) -> Tensor:
    """The maximum that exponentials are taken beside, 0 where there is no word."""
    return most.masked_fill(most == -torch.inf, 0)
