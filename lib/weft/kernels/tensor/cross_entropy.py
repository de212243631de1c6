"""The cross-entropy over a part of the vocabulary: two passes over the scores, and no copy.

Scores are the largest tensor of a model: for each token as many numbers as a rank has words.
Forward reads them once, with the online softmax: it keeps a maximum and a sum of exponentials
beside that maximum, and where a larger score comes, the sum shrinks. What is left are three
numbers for a token, which ranks may merge. Backward reads them once more and writes the gradient,
in their place if asked. So 3 numbers are moved for each score; with a pass of its own for the
maximum it would be 4, and torch's operations one by one move fp32 copies besides.

No warp waits for another within a row. A row's LANES running maxima and sums belong to one thread
each, with SCORES of a tile; only at the end do lanes meet. That costs one exponential more for
SCORES of them, which shrinks the lane's sum.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.graph import increment_version

from weft.kernels.code import Pass, launch, recording
from weft.kernels.tensor.rows import in_rows, kernel_tensors, load_part, store_part, view
from weft.plan.tensor import VocabularyPart, check_part, check_words
from weft.plan.tensors import tensor

LANES = 2**9  # of a row: 4 for each of 128 threads, whose loads are under way at once
BYTES = 16  # that a thread loads at once: 8 scores of bf16
BLOCK = 2**12  # scores of a program of the backward pass
LOWEST = tl.constexpr(-3.4e38)  # below every score, and finite: LOWEST - LOWEST is 0


def vocabulary_part(
    scores: Tensor, targets: Tensor, first: int = 0, last: int | None = None
) -> VocabularyPart:
    """Of each token's scores [.., N] for words first to last - 1: maximum, sum, target's score.

    In fp32, of scores in fp16, bf16 or fp32. Columns from last - first on are padding, and are not
    read. `targets` [..] are words of the whole vocabulary. Not differentiable: `scores_gradient`
    is what flows back, once the parts of all ranks are merged.
    """
    words = check_part(scores, targets, first, last)
    kernel_tensors(scores=scores)
    most, sums, target = scores.new_empty(3, *targets.shape, dtype=torch.float32)
    x = in_rows(scores.detach())
    if len(x):
        lane = BYTES // x.element_size()
        launch(
            "part", part_kernel, (len(x),), scores=view(x), targets=targets.contiguous(),
            most=most, sums=sums, target=target, first=first, words=words,
            LANES=LANES, SCORES=lane, num_warps=4,
        )  # fmt: skip
    return VocabularyPart(most, sums, target)


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
    kernel_tensors(scores=scores, lse=lse, slope=slope)
    x = in_rows(scores.detach())
    gradient = x if in_place else torch.empty_like(x)
    blocks = triton.cdiv(x.shape[1], BLOCK)
    if len(x):
        launch(
            "part dx", gradient_kernel, (len(x) * blocks,), scores=view(x),
            targets=targets.contiguous(), lse=lse.contiguous(), slope=slope.contiguous(),
            gradient=view(gradient), first=first, words=words, N=x.shape[1], blocks=blocks,
            EACH=slope.dim() > 0, BLOCK=BLOCK, num_warps=8,
        )  # fmt: skip
    if not in_place:
        return gradient.view(scores.shape)
    if gradient.data_ptr() != scores.data_ptr():
        scores.detach().copy_(gradient.view(scores.shape))
    else:
        increment_version(scores)  # so that autograd notices, where somebody needs the scores yet
    return scores


def cross_entropy(scores: Tensor, targets: Tensor, in_place: bool = False) -> Tensor:
    """Mean cross-entropy, in nats, of scores [.., N] of the whole vocabulary; of no token, none.

    `in_place` lets the backward pass overwrite scores with their gradient. Waits for the device
    once, to look whether targets are words.
    """
    words = check_part(scores, targets)
    if not targets.numel():
        raise ValueError(f"targets have shape {list(targets.shape)}, must have at least one token")
    check_words("targets", targets, words)
    kernel_tensors(scores=scores)
    return CrossEntropy.apply(scores, targets, in_place)


class CrossEntropy(torch.autograd.Function):
    """Of the whole vocabulary on one device; forward keeps the scores and one number a token."""

    @staticmethod
    def forward(ctx, scores, targets, in_place: bool):
        part = vocabulary_part(scores, targets)
        ctx.save_for_backward(scores, targets, part.lse)
        ctx.in_place = in_place
        return part.loss.mean()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        scores, targets, lse = ctx.saved_tensors
        slope = dy / targets.numel()
        return scores_gradient(scores, targets, lse, slope, in_place=ctx.in_place), None, None


# --- kernels --------------------------------------------------------------------------------------


@triton.jit
def part_kernel(
    scores, targets, most, sums, target, first, words, LANES: tl.constexpr, SCORES: tl.constexpr
):
    """A row's maximum, sum and target's score; no tile but the last needs a mask."""
    i = tl.program_id(0).to(tl.int64)
    TILE: tl.constexpr = LANES * SCORES
    o_tile = tl.arange(0, LANES)[:, None] * SCORES + tl.arange(0, SCORES)[None, :]
    p_row = scores.p + i * scores.row
    b_most, b_sum = tl.full([LANES], LOWEST, tl.float32), tl.zeros([LANES], tl.float32)
    full = words // TILE * TILE
    for start in range(0, full, TILE):
        b_s = tl.load(p_row + start + o_tile).to(tl.float32)
        b_most, b_sum = online(b_most, b_sum, b_s)
    if full < words:
        m_tile = full + o_tile < words
        b_s = tl.load(p_row + full + o_tile, mask=m_tile, other=-float("inf")).to(tl.float32)
        b_most, b_sum = online(b_most, b_sum, b_s)
    b_row = tl.max(b_most, 0)
    b_sum = tl.sum(b_sum * tl.exp(b_most - b_row), 0)
    at = tl.load(targets + i) - first
    own = (at >= 0) & (at < words)
    tl.store(most + i, tl.where(b_row == LOWEST, -float("inf"), b_row))
    tl.store(sums + i, b_sum)
    tl.store(target + i, tl.load(p_row + at, mask=own, other=0.0).to(tl.float32))


@triton.jit
def online(b_most, b_sum, b_s):
    """Each lane's maximum and sum, once its scores of another tile have come."""
    b_new = tl.maximum(b_most, tl.max(b_s, 1))
    b_sum = b_sum * tl.exp(b_most - b_new) + tl.sum(tl.exp(b_s - b_new[:, None]), 1)
    return b_new, b_sum


@triton.jit
def gradient_kernel(
    scores, targets, lse, slope, gradient, first, words, N, blocks,
    EACH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of a row's gradient, which may lie where the scores do: read first, then written."""
    i = (tl.program_id(0) // blocks).to(tl.int64)
    o_n = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(targets + i) - first
    b_lse, b_slope = tl.load(lse + i), tl.load(slope + (i if EACH else 0)).to(tl.float32)
    b_odds = tl.exp(load_part(scores, i, o_n, o_n < words) - b_lse)
    b_gradient = b_slope * tl.where(o_n == at, b_odds - 1.0, b_odds)
    store_part(gradient, i, o_n, o_n < N, tl.where(o_n < words, b_gradient, 0.0))


def passes(target: str) -> tuple[Pass, ...]:
    """Forward and backward over a rank's part of a vocabulary, in bf16 and in fp32."""
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        scores = torch.empty(4096, 16_384, dtype=dtype, device="meta")
        targets = torch.empty(4096, dtype=torch.int64, device="meta")
        with recording(target) as launched:
            part = vocabulary_part(scores, targets, 16_384, 32_768)
            scores_gradient(scores, targets, part.lse, part.lse, 16_384, 32_768)
        kind = "" if dtype == torch.bfloat16 else " of fp32"
        found += [replace(one, name=f"{one.name}{kind}") for one in launched]
    return tuple(found)
