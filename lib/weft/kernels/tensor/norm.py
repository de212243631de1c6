"""RMSNorm and LayerNorm with the residual's sum, in one pass over memory each way.

A norm computes little: its time is that of its bytes. Forward they are x and the residual, read,
and their sum and the normalized rows, written: 4 numbers for each of a row. Backward reads that
sum, which the residual stream keeps anyway, and two gradients, and writes one, which x and the
residual share: 4 again. Beside it forward keeps the scale of a row, and LayerNorm its mean, 4
bytes each.

A program has a whole row in registers, so that nothing is read twice. Backward, it takes row after
row and sums the weight's gradient in registers; the programs' sums are added up at the end, in
the same order every time, without atomics. What is wider than WIDEST is taken in pieces, and read
twice.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.code import Pass, launch, recording
from weft.kernels.tensor.rows import (
    in_rows,
    kernel_tensors,
    load_part,
    multiprocessors,
    store_part,
    view,
)
from weft.plan.tensor import check_norm

WIDEST = 2**15  # bytes of a row that a program holds at once
PIECE = 2**12  # bytes of a wider row's pieces
LEAST = 4  # rows of a program, for its sums of the weight's gradient are written and read again


def rms_norm(
    x: Tensor, weight: Tensor, residual: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """y = weight * s / sqrt(mean(s^2) + eps) of s = x + residual, and s, the new residual.

    x and residual [.., D], weight [D], of fp16, bf16 or fp32, computed in fp32. s is rounded to
    x's dtype before it is normalized; it is x itself where residual is None. Differentiable in x,
    weight and residual, the same to the last bit every time. Zhang and Sennrich 2019.
    """
    check_norm(x, weight, None, residual, eps)
    kernel_tensors(x=x, weight=weight, residual=residual)
    return _normed(x, weight, None, residual, eps, False)


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
    kernel_tensors(x=x, weight=weight, bias=bias, residual=residual)
    return _normed(x, weight, bias, residual, eps, True)


def _normed(x, weight, bias, residual, eps, centred) -> tuple[Tensor, Tensor]:
    y, total = Norm.apply(x, weight, bias, residual, float(eps), centred)
    return y, x if residual is None else total


class Norm(torch.autograd.Function):
    """With n = (s - mean) * scale: ds = scale * (g - mean(g) - n * mean(g * n)), g = weight * dy.

    RMSNorm has neither mean. What flows into the new residual is added.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, residual, eps, centred):
        shape, x, weight = x.shape, in_rows(x), weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        total = x if residual is None else torch.empty_like(x)
        y = torch.empty_like(x)
        scale = x.new_empty(len(x), dtype=torch.float32)
        mean = torch.empty_like(scale) if centred else None
        if len(x):
            added = None if residual is None else in_rows(residual)
            given = {"x": view(x), "residual": view(added), "weight": weight, "bias": bias}
            results = {"total": view(total), "y": view(y), "mean": mean, "scale": scale}
            kernel, sizes = (norm_kernel, row_sizes(x)) if fits(x) else (wide_kernel, pieces(x))
            launch("norm", kernel, (len(x),), **given, **results, D=x.shape[1], eps=eps, **sizes)
        ctx.save_for_backward(total, weight, mean, scale)
        ctx.shape, ctx.biased, ctx.added = shape, bias is not None, residual is not None
        ctx.set_materialize_grads(False)
        total = total.view(shape) if residual is not None else None
        return y.view(shape), total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy, dtotal):
        if dy is None:
            return dtotal, None, None, dtotal, None, None
        total, weight, mean, scale = ctx.saved_tensors
        dy = in_rows(dy)
        dtotal = None if dtotal is None else in_rows(dtotal)
        dx, dweight, dbias = gradients(dy, dtotal, total, weight, mean, scale, ctx.biased)
        dx = dx.view(ctx.shape)
        return dx, dweight, dbias, dx if ctx.added else None, None, None


def gradients(dy, dtotal, total, weight, mean, scale, biased: bool) -> tuple[Tensor | None, ...]:
    """dx, and the programs' sums for weight and bias, added up."""
    tokens, D = total.shape
    dx = torch.empty_like(total)
    programs = min(triton.cdiv(tokens, LEAST), programs_at_once(total, mean is not None))
    apart = biased and 2 * D * total.element_size() > WIDEST  # two sums would not fit
    parts = total.new_empty(1 + (biased and not apart), programs, D, dtype=torch.float32)
    given = {"dy": view(dy), "total": view(total), "mean": mean, "scale": scale}
    whole = {"dtotal": view(dtotal), "weight": weight, "dx": view(dx)}
    sums = {"dweight": parts[0], "dbias": parts[1] if len(parts) > 1 else None}
    if tokens and fits(total):
        sizes = {"tokens": tokens, "D": D, **row_sizes(total, backward=True)}
        launch("norm dx", gradient_kernel, (programs,), **given, **whole, **sums, **sizes)
    elif tokens:
        sizes = {"D": D, **pieces(total)}
        launch("norm dx", wide_gradient_kernel, (tokens,), **given, **whole, **sizes)
        grid = (programs, triton.cdiv(D, sizes["BLOCK"]))
        launch("norm dw", weight_kernel, grid, **given, **sums, tokens=tokens, **sizes)
    dweight, *dbias = parts.sum(1).to(weight.dtype)
    if apart:
        dbias = [dy.sum(0, dtype=torch.float32).to(weight.dtype)]
    return dx, dweight, dbias[0] if biased else None


def fits(x: Tensor) -> bool:
    """Whether a program holds a whole row."""
    return x.shape[1] * x.element_size() <= WIDEST


def row_sizes(x: Tensor, backward: bool = False) -> dict[str, int]:
    """A block as wide as a row, of which a thread has 32 numbers or more, and 16 backward."""
    block = triton.next_power_of_2(x.shape[1])
    most, each = (16, 512) if backward else (8, 1024)
    return {"BLOCK": block, "num_warps": min(most, max(4, block // each))}


def pieces(x: Tensor) -> dict[str, int]:
    """A block that is a piece of a row."""
    return {"BLOCK": PIECE // x.element_size(), "num_warps": 4}


def programs_at_once(x: Tensor, centred: bool) -> int:
    """As many as a GPU has registers for: 80 for a thread, and 128 where there is a mean."""
    warps = row_sizes(x, backward=True)["num_warps"] if fits(x) else 4
    return multiprocessors(x) * max(1, (16 if centred else 24) // warps)


# --- kernels --------------------------------------------------------------------------------------


@triton.jit
def norm_kernel(
    x, residual, weight, bias, total, y, mean, scale, D, eps, BLOCK: tl.constexpr
):  # fmt: skip
    """A row: add the residual, normalize, and keep what backward needs."""
    i = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BLOCK)
    m_d = o_d < D
    b_s = summed(x, residual, total, i, o_d, m_d)
    if mean is not None:
        b_mean = tl.sum(b_s) / D
        tl.store(mean + i, b_mean)
        b_s = tl.where(m_d, b_s - b_mean, 0.0)
    b_scale = tl.rsqrt(tl.sum(b_s * b_s) / D + eps)
    tl.store(scale + i, b_scale)
    store_normed(y, weight, bias, b_s * b_scale, i, o_d, m_d)


@triton.jit
def wide_kernel(
    x, residual, weight, bias, total, y, mean, scale, D, eps, BLOCK: tl.constexpr
):  # fmt: skip
    """The same in pieces: once to add and to know mean and scale, once more to normalize.

    Mean and squares of two pieces together are those of each and of the step between their means.
    """
    i = tl.program_id(0).to(tl.int64)
    b_mean, b_squares = 0.0, 0.0
    for start in range(0, D, BLOCK):
        o_d = start + tl.arange(0, BLOCK)
        m_d = o_d < D
        b_s = summed(x, residual, total, i, o_d, m_d)
        if mean is not None:
            count = tl.minimum(D - start, BLOCK).to(tl.float32)
            b_own = tl.sum(b_s) / count
            step, share = b_own - b_mean, count / (start + count)
            b_s = tl.where(m_d, b_s - b_own, 0.0)
            b_squares += step * step * share * start
            b_mean += step * share
        b_squares += tl.sum(b_s * b_s)
    b_scale = tl.rsqrt(b_squares / D + eps)
    tl.store(scale + i, b_scale)
    if mean is not None:
        tl.store(mean + i, b_mean)
    tl.debug_barrier()  # the sum is read by other threads than have written it
    for start in range(0, D, BLOCK):
        o_d = start + tl.arange(0, BLOCK)
        m_d = o_d < D
        b_n = (load_part(total, i, o_d, m_d) - b_mean) * b_scale
        store_normed(y, weight, bias, b_n, i, o_d, m_d)


@triton.jit
def summed(x, residual, total, i, o_d, m_d):
    """x + residual as it is kept, which is rounded; x alone where there is no residual."""
    b_s = load_part(x, i, o_d, m_d)
    if residual is not None:
        b_s += load_part(residual, i, o_d, m_d)
        b_s = b_s.to(total.p.dtype.element_ty)
        tl.store(total.p + i * total.row + o_d, b_s, mask=m_d)
        b_s = b_s.to(tl.float32)
    return b_s


@triton.jit
def store_normed(y, weight, bias, b_n, i, o_d, m_d):
    """weight * n + bias."""
    b_y = b_n * tl.load(weight + o_d, mask=m_d, other=0.0).to(tl.float32)
    if bias is not None:
        b_y += tl.load(bias + o_d, mask=m_d, other=0.0).to(tl.float32)
    store_part(y, i, o_d, m_d, b_y)


@triton.jit
def gradient_kernel(
    dy, dtotal, total, weight, mean, scale, dx, dweight, dbias, tokens, D, BLOCK: tl.constexpr
):  # fmt: skip
    """dx of every so many-th row, and what they give to the weight's gradient and the bias's.

    A row is loaded once for its two means and again, from the cache, for what they are taken from:
    in between only the sums of the weight's gradient stay in registers.
    """
    o_d = tl.arange(0, BLOCK)
    m_d = o_d < D
    b_dweight, b_dbias = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for i in range(tl.program_id(0).to(tl.int64), tokens, tl.num_programs(0)):
        b_past = 0.0
        if dtotal is not None and mean is None:  # early, where there are registers for it
            b_past = load_part(dtotal, i, o_d, m_d)
        b_g = weighted(dy, weight, i, o_d, m_d, "evict_last")
        b_along = tl.sum(b_g * normed(total, mean, scale, i, o_d, m_d, "evict_last")) / D
        b_level = tl.sum(b_g) / D if mean is not None else 0.0
        tl.debug_barrier()  # no load of the second half moves into the first
        b_dy = load_part(dy, i, o_d, m_d, "evict_first")
        b_n = normed(total, mean, scale, i, o_d, m_d, "evict_first")
        b_dweight += b_dy * b_n
        if dbias is not None:
            b_dbias += b_dy
        if dtotal is not None and mean is not None:
            b_past = load_part(dtotal, i, o_d, m_d)
        b_g = b_dy * tl.load(weight + o_d, mask=m_d, other=0.0).to(tl.float32)
        b_dx = tl.load(scale + i) * (b_g - b_level - b_n * b_along) + b_past
        store_part(dx, i, o_d, m_d, b_dx)
    p_part = tl.program_id(0) * D + o_d
    tl.store(dweight + p_part, b_dweight, mask=m_d)
    if dbias is not None:
        tl.store(dbias + p_part, b_dbias, mask=m_d)


@triton.jit
def wide_gradient_kernel(
    dy, dtotal, total, weight, mean, scale, dx, D, BLOCK: tl.constexpr
):  # fmt: skip
    """dx of a row in pieces: once for its two means, once more for what they are taken from."""
    i = tl.program_id(0).to(tl.int64)
    b_along, b_level = 0.0, 0.0
    for start in range(0, D, BLOCK):
        o_d = start + tl.arange(0, BLOCK)
        m_d = o_d < D
        b_g = weighted(dy, weight, i, o_d, m_d)
        b_along += tl.sum(b_g * normed(total, mean, scale, i, o_d, m_d))
        if mean is not None:
            b_level += tl.sum(b_g)
    for start in range(0, D, BLOCK):
        o_d = start + tl.arange(0, BLOCK)
        m_d = o_d < D
        b_n = normed(total, mean, scale, i, o_d, m_d)
        b_g = weighted(dy, weight, i, o_d, m_d)
        b_dx = tl.load(scale + i) * (b_g - b_level / D - b_n * (b_along / D))
        if dtotal is not None:
            b_dx += load_part(dtotal, i, o_d, m_d)
        store_part(dx, i, o_d, m_d, b_dx)


@triton.jit
def weight_kernel(
    dy, total, mean, scale, dweight, dbias, tokens, D, BLOCK: tl.constexpr
):  # fmt: skip
    """What a piece of every so many-th row gives to the weight's gradient and the bias's."""
    o_d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_d = o_d < D
    b_dweight, b_dbias = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for i in range(tl.program_id(0).to(tl.int64), tokens, tl.num_programs(0)):
        b_dy = load_part(dy, i, o_d, m_d)
        b_dweight += b_dy * normed(total, mean, scale, i, o_d, m_d)
        if dbias is not None:
            b_dbias += b_dy
    p_part = tl.program_id(0) * D + o_d
    tl.store(dweight + p_part, b_dweight, mask=m_d)
    if dbias is not None:
        tl.store(dbias + p_part, b_dbias, mask=m_d)


@triton.jit
def weighted(dy, weight, i, o_d, m_d, CACHED: tl.constexpr = ""):
    """The gradient of the normalized row."""
    b_dy = load_part(dy, i, o_d, m_d, CACHED)
    return b_dy * tl.load(weight + o_d, mask=m_d, other=0.0).to(tl.float32)


@triton.jit
def normed(total, mean, scale, i, o_d, m_d, CACHED: tl.constexpr = ""):
    """The normalized row again, from what was kept of it."""
    b_s = load_part(total, i, o_d, m_d, CACHED)
    if mean is not None:
        b_s -= tl.load(mean + i)
    return b_s * tl.load(scale + i)


# --- what a GPU is given --------------------------------------------------------------------------


def passes(target: str, only: tuple[str, ...] = ()) -> tuple[Pass, ...]:
    """Both norms of rows as wide as a program holds, and of wider ones, in bf16 with a residual."""
    found = []
    for width in (4096, WIDEST // 2, 2 * WIDEST):
        rows = [torch.empty(4096, width, dtype=torch.bfloat16, device="meta") for _ in range(4)]
        x, residual, dy, dtotal = (one.requires_grad_() for one in rows)
        weight, bias = (x.new_empty(width, requires_grad=True) for _ in range(2))
        for norm, inside in (
            (rms_norm, {"weight": weight}),
            (layer_norm, {"weight": weight, "bias": bias}),
        ):
            with recording(target) as launched:
                results = norm(x, residual=residual, **inside)
                torch.autograd.grad(results, (x, *inside.values()), (dy, dtotal))
            kind = f"{norm.__name__} of {width}"
            found += [replace(one, name=f"{kind}{one.name[4:]}") for one in launched]
    return tuple(one for one in found if not only or one.name in only)
