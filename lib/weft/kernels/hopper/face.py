"""FlashAttention-3 as a function of tensors, differentiable once: what is accepted, and who runs.

What is compiled for it, without a GPU, is what it launches on tensors of torch's meta device.
"""

from functools import partial

import torch
from torch import Tensor

from weft.kernels.attention import NoSecondDerivative
from weft.kernels.code import Pass, recording
from weft.kernels.hopper.backward import FUSED, one_pass, two_passes
from weft.kernels.hopper.forward import VERSIONS, forward
from weft.kernels.hopper.launch import aligned, check_choice, check_device
from weft.plan.attention import check
from weft.plan.hopper import KERNEL_TILES

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    mask: None = None,
    lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale Q K^T) V on a Hopper GPU, forward and backward: FlashAttention-3.

    The signature is weft.ref.attention's, but a mask must be None, tensors are fp16 or bf16, and
    the head width, of keys and of values, is 64, 128 or 256. What the copy engine cannot address is
    copied first. Results are the same bits every time. On CPU tensors the kernels are interpreted.

    q [B, T, H, K], k and v [B, S, G, K] give o [B, T, H, K], and with `lse` also the natural
    log-sum-exp, [B, T, H] fp32. ValueError names an argument that does not fit.
    Shah et al. 2024, algorithms 1 and 2.
    """
    return _attention("overlapped", q, k, v, causal, scale, mask, lse)


def simple(q, k, v, causal=False, scale=None, mask=None, lse=False):
    """`attention` with version 1 of its forward pass: TMA and WGMMA, and all warps alike."""
    return _attention("simple", q, k, v, causal, scale, mask, lse)


def specialized(q, k, v, causal=False, scale=None, mask=None, lse=False):
    """`attention` with version 2 of its forward pass: one warp loads, the others compute."""
    return _attention("specialized", q, k, v, causal, scale, mask, lse)


def pingpong(q, k, v, causal=False, scale=None, mask=None, lse=False):
    """`attention` with version 3 of its forward pass: warpgroups take turns."""
    return _attention("pingpong", q, k, v, causal, scale, mask, lse)


def fused(q, k, v, causal=False, scale=None, mask=None, lse=False):
    """`attention` with its backward pass in one, of five products: head widths 64 and 128.

    Blocks add to the gradient of Q in whatever order they come, so its last bits may differ from
    run to run. Those of K and V, and all of the forward pass, are the same every time.
    """
    return _attention("fused", q, k, v, causal, scale, mask, lse)


def _attention(version, q, k, v, causal, scale, mask, lse):
    sizes = check(q, k, v, None, scale)
    if mask is not None:
        raise ValueError("mask is given, must be None: weft.kernels.attention takes masks")
    if q.dtype not in HALVES.values():
        raise ValueError(f"q is {str(q.dtype)[6:]}, must be float16 or bfloat16")
    if sizes.K not in KERNEL_TILES or sizes.V != sizes.K:
        raise ValueError(
            f"q has width {sizes.K} and v has {sizes.V}, must be alike and one of "
            f"{', '.join(map(str, KERNEL_TILES))}"
        )
    if version == "fused" and sizes.K not in FUSED:
        raise ValueError(
            f"q has width {sizes.K}, must be one of {', '.join(map(str, FUSED))}:"
            " attention takes the others"
        )
    check_device("q", q)
    scale = sizes.K**-0.5 if scale is None else scale
    o, lse_BTH = _Attention.apply(q, k, v, bool(causal), float(scale), version)
    return (o, lse_BTH) if lse else o


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, scale, version):
        q, k, v = aligned(q), aligned(k), aligned(v)
        name = "overlapped" if version == "fused" else version
        o, lse_BHT = forward(name, q, k, v, causal, scale)
        ctx.save_for_backward(q, k, v, o, lse_BHT)
        ctx.options = causal, scale
        ctx.passes = one_pass if version == "fused" else two_passes
        ctx.set_materialize_grads(False)
        return o, lse_BHT.transpose(1, 2)

    @staticmethod
    def backward(ctx, do, dlse_BTH):
        q, k, v, o, lse_BHT = ctx.saved_tensors
        with torch.no_grad():
            do = torch.zeros_like(o) if do is None else aligned(do)
            dlse_BHT = None if dlse_BTH is None else dlse_BTH.transpose(1, 2)
            grads = ctx.passes(q, k, v, o, lse_BHT, do, dlse_BHT, *ctx.options)
        if torch.is_grad_enabled():  # somebody means to differentiate again
            grads = [NoSecondDerivative.apply(grad, q, k, v) for grad in grads]
        return *grads, None, None, None


# --- what compile_for is to build -----------------------------------------------------------------


def passes(
    target: str, version: str = "overlapped", width: int = 128, causal: bool = True,
    dtype: str = "bf16",
) -> tuple[Pass, ...]:  # fmt: skip
    """The forward pass of a version, or "fused", and the kernels of its backward pass."""
    if target != "sm_90":
        raise ValueError(
            f"target is {target!r}, must be 'sm_90': its tensor cores and copies are Hopper's own"
        )
    check_choice("version", version, (*VERSIONS, "fused"))
    check_choice("width", width, FUSED if version == "fused" else KERNEL_TILES)
    check_choice("dtype", dtype, HALVES)
    with recording(target) as found:
        q, k, v = (
            torch.empty(1, 128, 1, width, dtype=HALVES[dtype], device="meta", requires_grad=True)
            for _ in range(3)
        )
        o = _attention(version, q, k, v, causal, None, None, False)
        torch.autograd.grad(o, (q, k, v), torch.empty_like(o))
    return tuple(found)


def _forward_alone(version: str, target: str, **kind) -> tuple[Pass, ...]:
    return passes(target, version, **kind)[:1]


def _fused_passes(
    target: str, width: int = 128, causal: bool = True, dtype: str = "bf16"
) -> tuple[Pass, ...]:
    return passes(target, "fused", width, causal, dtype)


fused.passes = _fused_passes
for _version in (simple, specialized, pingpong):  # their backward is the face's
    _version.passes = partial(_forward_alone, _version.__name__)
