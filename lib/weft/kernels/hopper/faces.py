"""FlashAttention-3 in Gluon: four versions forward, two ways backward, for Hopper GPUs.

Tile order, for whoever wants to follow it. 64 queries belong to a warpgroup, 2 or 3 warpgroups to
a block (widths 128 and 256, width 64). A piece of work is one head's tile of 128 or 192 queries;
`weft.plan.hopper.tile_scheduler` deals the pieces to the blocks. Keys come in tiles of 128
(64 at width 256) from the right to the left: from the last that any query of the piece sees
(`tile.span`, at least one) to tile 0. Each tile of scores is multiplied by scale * log2(e)
and hidden where a query does not look; maximum, sum and output are kept per row and rescaled after
each tile; weights are rounded to the input's type before they meet the values. The output is
divided by the sum at the end.

Shah et al. 2024, "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision".
"""

from collections.abc import Callable
from functools import partial
from math import e, log2
from typing import NamedTuple

import torch
from torch import Tensor

from weft.kernels.attention import NoSecondDerivative
from weft.kernels.code import Pass
from weft.kernels.hopper import v2_specialized, v3_pingpong, v4_overlapped
from weft.kernels.hopper.delta import delta
from weft.kernels.hopper.dkdv import dkdv
from weft.kernels.hopper.dkdv_wide import dkdv_wide
from weft.kernels.hopper.dq import dq
from weft.kernels.hopper.dqdkdv import fused as fused_kernel
from weft.kernels.hopper.launch import (  # fmt: skip
    aligned,
    blocks,
    check_choice,
    check_device,
    described,
    heads_in_cache,
    launch,
    type_of,
    work,
)
from weft.kernels.hopper.v1_simple import simple as simple_kernel
from weft.plan.attention import check
from weft.plan.hopper import of_keys, of_queries

ROWS = 64  # of queries or keys, to a warpgroup: what one of its products takes
LOG2E = log2(e)


class Tiling(NamedTuple):
    """Forward: keys in a tile, stages of the rings, warpgroups. Then dQ, then dK and dV."""

    keys: int
    stages: int
    groups: int
    dq_keys: int
    dq_stages: int
    dkdv: Callable
    dkdv_keys: int  # of a block
    dkdv_stages: int = 2


TILINGS = {  # by head width
    64: Tiling(128, 4, 3, 128, 3, dkdv, 128),
    128: Tiling(128, 2, 2, 128, 2, dkdv, 128),
    256: Tiling(64, 2, 2, 32, 2, dkdv_wide, 64),
}
CONSUMERS = {
    "specialized": v2_specialized.consume,
    "pingpong": v3_pingpong.consume,
    "overlapped": v4_overlapped.consume,
}
VERSIONS = ("simple", *CONSUMERS)
FUSED = (64, 128)  # head widths with a backward pass in one


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

    With causal=True a value that is not finite also reaches queries that do not look at it, if it
    lies in one of the tiles on the diagonal: there its weight is 0, and 0 * NaN is NaN. Gradients
    in such a tile are NaN likewise.

    q [B, T, H, K], k and v [B, S, G, K] give o [B, T, H, K], and with `lse` also the natural
    log-sum-exp, [B, T, H] fp32. ValueError names an argument that does not fit.
    Shah et al. 2024, algorithms 1 and 2.
    """
    return _attention("overlapped", q, k, v, causal, scale, mask, lse)


def simple(q, k, v, causal=False, scale=None, mask=None, lse=False):
    """`attention` with version 1 of its forward pass: bulk copies, and all warps alike."""
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
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"q is {str(q.dtype)[6:]}, must be float16 or bfloat16")
    if sizes.K not in TILINGS or sizes.V != sizes.K:
        raise ValueError(
            f"q has width {sizes.K} and v has {sizes.V}, must be alike and one of "
            f"{', '.join(map(str, TILINGS))}"
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
        o, lse_BHT = _forward(name, q, k, v, causal, scale)
        ctx.save_for_backward(q, k, v, o, lse_BHT)
        ctx.options = causal, scale
        ctx.passes = _backward_fused if version == "fused" else _backward
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


def _forward(version, q, k, v, causal, scale) -> tuple[Tensor, Tensor]:
    """O [B, T, H, K] and its log-sum-exp [B, H, T], by one of the versions."""
    (B, T, H, K), (S, G), tiling = q.shape, k.shape[1:3], TILINGS[q.shape[3]]
    o = torch.empty((B, T, H, K), dtype=q.dtype, device=q.device)
    lse_BHT = torch.empty((B, H, T), dtype=torch.float32, device=q.device)
    together = heads_in_cache(S, 2 * K * k.element_size(), H // G)
    rows = 2 * ROWS if version == "simple" else tiling.groups * ROWS
    programs = B * H * -(-T // rows)
    if version != "simple":
        programs = min(programs, blocks(q.device))
    p_work = work(of_queries, q.device, T, S, B * H, together, rows, tiling.keys, causal, programs)
    sizes = (T, S, S - T, H, H // G, p_work, scale * LOG2E)
    kv = described(k, tiling.keys), described(v, tiling.keys)
    options = {"CAUSAL": causal, "TILE_K": tiling.keys}
    if version == "simple":
        args = (described(q, 2 * ROWS), *kv, described(o, 2 * ROWS), lse_BHT, *sizes)
        launch(simple_kernel, programs, args, 8, **options, STAGES=2)
    else:
        args = (described(q, ROWS), *kv, described(o, ROWS), lse_BHT, *sizes)
        options |= {"STAGES": tiling.stages, "GROUPS": tiling.groups}
        kernel = v2_specialized.forward
        launch(kernel, programs, args, CONSUME=CONSUMERS[version], **options)
    return o, lse_BHT


def _per_row(o, lse_BHT, do, dlse_BHT) -> tuple[Tensor, Tensor]:
    """What `delta` makes of each row, [B * H, T rounded up]."""
    B, T, H, _ = o.shape
    padded = -(-T // 128) * 128
    shift, delta_ = (torch.empty((B * H, padded), device=o.device) for _ in range(2))
    args = (described(o, ROWS), described(do, ROWS), lse_BHT, shift, delta_, T)
    launch(delta, B * H * padded // ROWS, args)
    if dlse_BHT is not None:
        delta_.view(B, H, padded)[:, :, :T] -= dlse_BHT
    return shift, delta_


def _backward(q, k, v, o, lse_BHT, do, dlse_BHT, causal, scale) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV: a number or two per row, then a pass for each side of the scores."""
    (B, T, H, K), (S, G), tiling = q.shape, k.shape[1:3], TILINGS[q.shape[3]]
    shift, delta_ = _per_row(o, lse_BHT, do, dlse_BHT)
    dq_, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    sizes = (T, S, S - T, H, H // G)

    together = heads_in_cache(S, 2 * K * k.element_size(), H // G)
    kv = described(k, tiling.dq_keys), described(v, tiling.dq_keys)
    args = (described(q, ROWS), *kv, described(do, ROWS), described(dq_, ROWS), shift, delta_)
    programs = min(blocks(q.device), B * H * -(-T // (2 * ROWS)))
    shape = T, S, B * H, together, 2 * ROWS, tiling.dq_keys, causal, programs
    p_work = work(of_queries, q.device, *shape)
    options = {"CAUSAL": causal, "TILE_K": tiling.dq_keys, "STAGES": tiling.dq_stages}
    launch(dq, programs, (*args, *sizes, p_work, scale * LOG2E), **options)

    together = heads_in_cache(T * (H // G), 2 * K * k.element_size(), 1)
    wide = [described(x, ROWS) for x in (q, k, v, do, shift, delta_, dk, dv)]
    programs = B * G * -(-S // tiling.dkdv_keys)
    options = {"CAUSAL": causal, "STAGES": tiling.dkdv_stages}
    shape = T, S, B * G, together, ROWS, tiling.dkdv_keys, causal, programs
    p_work = work(of_keys, q.device, *shape)
    launch(tiling.dkdv, programs, (*wide, *sizes, p_work, scale * LOG2E), **options)
    return dq_, dk, dv


def _backward_fused(
    q, k, v, o, lse_BHT, do, dlse_BHT, causal, scale
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV in one pass. dQ is summed in fp32, in an order of its own, then put right."""
    (B, T, H, K), (S, G) = q.shape, k.shape[1:3]
    shift, delta_ = _per_row(o, lse_BHT, do, dlse_BHT)
    tiles, parts = -(-T // ROWS), K // 64
    dq_sum = torch.zeros((B * H * tiles * parts * 16, 256), device=q.device)
    dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (k, v))
    keys = 2 * ROWS
    args = (described(q, ROWS), described(k, keys), described(v, keys), described(do, ROWS))
    args += (described(shift, ROWS), described(delta_, ROWS), described(dq_sum, 0, [16, 256]))
    args += (described(dk, keys), described(dv, keys), T, S, S - T, H, H // G)
    together = heads_in_cache(T * (H // G), 2 * K * k.element_size(), 1)
    programs = B * G * -(-S // keys)
    p_work = work(of_keys, q.device, T, S, B * G, together, ROWS, keys, causal, programs)
    options = {"CAUSAL": causal, "STAGES": 2}
    launch(fused_kernel, programs, (*args, p_work, scale * LOG2E), **options)

    # The order of `dqdkdv.hand_in`: warp, column / 8, row % 8, column % 8 / 2, row half, rest
    dq_ = torch.empty((B, tiles * ROWS, H, K), dtype=q.dtype, device=q.device)
    held = dq_sum.view(B, H, tiles, parts, 4, 8, 8, 4, 2, 2)
    held = held.permute(0, 2, 4, 8, 6, 1, 3, 5, 7, 9)
    torch.mul(held, scale, out=dq_.view(held.shape))
    return dq_[:, :T], dk, dv


# --- what compile_for is to build -----------------------------------------------------------------


def passes(
    target: str, version: str = "overlapped", width: int = 128, causal: bool = True,
    dtype: str = "bf16",
) -> tuple[Pass, ...]:  # fmt: skip
    """The forward pass of a version, and the three kernels of the backward pass."""
    if target != "sm_90":
        raise ValueError(
            f"target is {target!r}, must be 'sm_90': its tensor cores and copies are Hopper's own"
        )
    check_choice("version", version, VERSIONS)
    check_choice("width", width, TILINGS)
    check_choice("dtype", dtype, ("bf16", "fp16"))
    tiling = TILINGS[width]
    ints = dict.fromkeys(("T", "S", "lead", "H", "R"), "i32") | {"p_work": "*i32:16"}
    ints |= {"scale": "fp32"}
    one = type_of(dtype, 1, ROWS, 1, width)
    stats = {"p_shift": "*fp32:16", "p_delta": "*fp32:16"}

    kv = dict.fromkeys(("k_desc", "v_desc"), type_of(dtype, 1, tiling.keys, 1, width))
    options = {"CAUSAL": causal, "TILE_K": tiling.keys}
    if version == "simple":
        ends = dict.fromkeys(("q_desc", "o_desc"), type_of(dtype, 1, 2 * ROWS, 1, width))
        kernel, options, warps = simple_kernel, options | {"STAGES": 2}, 8
    else:
        ends = dict.fromkeys(("q_desc", "o_desc"), one)
        options |= {"STAGES": tiling.stages, "GROUPS": tiling.groups}
        kernel, options, warps = (
            v2_specialized.forward, options | {"CONSUME": CONSUMERS[version]}, 4
        )  # fmt: skip
    forward = ends | kv | {"p_lse": "*fp32:16"} | ints

    kv = dict.fromkeys(("k_desc", "v_desc"), type_of(dtype, 1, tiling.dq_keys, 1, width))
    to_dq = dict.fromkeys(("q_desc", "do_desc", "dq_desc"), one) | kv | stats | ints
    dq_options = {"CAUSAL": causal, "TILE_K": tiling.dq_keys, "STAGES": tiling.dq_stages}

    names = ("q_desc", "k_desc", "v_desc", "do_desc", "dk_desc", "dv_desc")
    rows = dict.fromkeys(("shift_desc", "delta_desc"), type_of("fp32", 1, ROWS))
    to_dkdv = dict.fromkeys(names, one) | rows | ints
    dkdv_options = {"CAUSAL": causal, "STAGES": tiling.dkdv_stages}

    to_delta = dict.fromkeys(("o_desc", "do_desc"), one) | stats | {"p_lse": "*fp32:16", "T": "i32"}
    return (
        Pass("forward", kernel, forward, options, {"num_warps": warps}),
        Pass("delta", delta, to_delta, {}, {"num_warps": 4}),
        Pass("dq", dq, to_dq, dq_options, {"num_warps": 4}),
        Pass("dkdv", tiling.dkdv, to_dkdv, dkdv_options, {"num_warps": 4}),
    )


def _forward_alone(version: str, target: str, **kind) -> tuple[Pass, ...]:
    return passes(target, version, **kind)[:1]


def _fused_passes(
    target: str, width: int = 128, causal: bool = True, dtype: str = "bf16"
) -> tuple[Pass, ...]:
    """The forward pass, what is needed of each row, and the backward pass in one."""
    check_choice("width", width, FUSED)
    forward, to_delta, _, two = passes(target, "overlapped", width, causal, dtype)
    keys = type_of(dtype, 1, 2 * ROWS, 1, width)
    to_fused = {**two.signature, "dq_desc": type_of("fp32", 16, 256)}
    to_fused |= dict.fromkeys(("k_desc", "v_desc", "dk_desc", "dv_desc"), keys)
    options = {"CAUSAL": causal, "STAGES": 2}
    return forward, to_delta, Pass("fused", fused_kernel, to_fused, options, {"num_warps": 4})


fused.passes = _fused_passes
for _version in (simple, specialized, pingpong):  # their backward is the face's
    _version.passes = partial(_forward_alone, _version.__name__)
