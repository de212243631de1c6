"""FlashAttention-3 with 8-bit factors: what is rounded, with which scales, and the face.

Block quantisation: the largest number of a tile becomes 448, the largest of e4m3. Incoherent
processing: Q and K are first multiplied by the same random orthogonal matrix, which leaves their
product alone and spreads an outlier over its row. Shah et al. 2024, section 3.3.

The rounding is plain torch and a pass over Q, K and V of its own; a model would do it where it
makes them. The kernel is in `fp8_forward`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from weft.kernels.code import Pass, recording
from weft.kernels.hopper.forward import LOG2E
from weft.kernels.hopper.fp8_forward import forward
from weft.kernels.hopper.launch import (  # fmt: skip
    aligned,
    blocks,
    check_choice,
    check_device,
    described,
    heads_in_cache,
    launch,
    work,
)
from weft.plan.attention import check
from weft.plan.hopper import KERNEL_TILES_FP8, ROWS, by_queries

LARGEST = 448.0  # of e4m3
SMALLEST = 2.0**-30  # of a tile's scale, beside the largest in its tensor: ratios must not overflow
# Position -> key within 16: the order in which a thread finds weights after a product of scores.
KEY_ORDER = [8 * half + 2 * lane + i for lane in range(4) for half in range(2) for i in range(2)]


class Quantized(NamedTuple):
    """Q, K and V in e4m3 and the scales of their tiles, by which they are to be multiplied.

    q [B, T, H, K] with q_by [B, H, tiles of 128]; k [B, S, G, K] with k_by [B, G, tiles of keys];
    v [B, G, K, S up to a multiple of 16], its keys in KEY_ORDER, with v_by [B, G, tiles of keys].
    """

    q: Tensor
    k: Tensor
    v: Tensor
    q_by: Tensor
    k_by: Tensor
    v_by: Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    mask: None = None,
    lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale Q K^T) V with products of e4m3 on a Hopper GPU; there is no backward pass.

    As `weft.kernels.hopper.attention`, and what it accepts: fp16 or bf16 in and out, sums in fp32.
    ValueError names an argument that does not fit, or needs a gradient.
    """
    sizes = check(q, k, v, None, scale)
    if mask is not None:
        raise ValueError("mask is given, must be None: weft.kernels.attention takes masks")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(f"{name} is {str(x.dtype)[6:]}, must be float16 or bfloat16")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires a gradient, must not: FP8 has no backward pass here")
    if sizes.K not in KERNEL_TILES_FP8 or sizes.V != sizes.K:
        raise ValueError(
            f"q has width {sizes.K} and v has {sizes.V}, must be alike and one of "
            f"{', '.join(map(str, KERNEL_TILES_FP8))}"
        )
    check_device("q", q)
    scale = sizes.K**-0.5 if scale is None else scale
    o, lse_BTH = attend(quantize(q, k, v, signs(sizes.K)), sizes.S, causal, scale, q.dtype)
    return (o, lse_BTH) if lse else o


def attend(
    x: Quantized, S: int, causal: bool, scale: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Attention of tensors that are quantized already: O [B, T, H, K], log-sum-exp [B, T, H]."""
    (B, T, H, K), G, tile = x.q.shape, x.k.shape[2], KERNEL_TILES_FP8[x.q.shape[3]]
    o = torch.empty((B, T, H, K), dtype=dtype, device=x.q.device)
    lse_BHT = torch.empty((B, H, T), dtype=torch.float32, device=x.q.device)
    programs = min(blocks(o.device), B * H * -(-T // tile.rows))
    together = heads_in_cache(S, 2 * K, H // G)
    shape = T, S, B * H, together, tile.rows, tile.keys, causal, programs
    p_work = work(by_queries, o.device, *shape)
    descs = (
        described(x.q, ROWS), described(x.k, tile.keys),
        described(x.v, 0, [1, 1, K, tile.keys]), described(o, ROWS),
    )  # fmt: skip
    sizes = (T, S, H, H // G, p_work, scale * LOG2E)
    args = (*descs, lse_BHT, x.q_by, x.k_by, x.v_by, *sizes)
    launch("forward", forward, programs, args, CAUSAL=causal, STAGES=tile.stages)
    return o, lse_BHT.transpose(1, 2)


def quantize(q: Tensor, k: Tensor, v: Tensor, signs: Tensor | None = None) -> Quantized:
    """Round Q, K and V, tile by tile; with signs, Q and K go through `incoherent` first."""
    tile = KERNEL_TILES_FP8[q.shape[3]]
    if signs is not None:
        q, k = incoherent(q, signs), incoherent(k, signs)
    q8, q_by = by_tiles(q, tile.rows)
    k8, k_by = by_tiles(k, tile.keys)
    v8, v_by = by_tiles(v, tile.keys)
    return Quantized(aligned(q8), aligned(k8), transposed(v8), q_by, k_by, v_by)


def by_tiles(x: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """x [B, T, H, K] in e4m3 and a scale for each tile of `rows` rows, [B, H, tiles]."""
    top = torch.stack([tile.abs().amax((1, 3)) for tile in x.float().split(rows, 1)], -1)
    top = torch.maximum(top, top.amax() * SMALLEST)
    by = torch.where(top > 0, top, LARGEST) / LARGEST
    each = by.repeat_interleave(rows, -1)[..., : x.shape[1]].transpose(1, 2)[..., None]
    return (x.float() / each).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), by.contiguous()


def transposed(v8: Tensor) -> Tensor:
    """v [B, S, G, K] as [B, G, K, S], keys in KEY_ORDER; S goes up to a multiple of 16."""
    B, S, G, K = v8.shape
    bits = v8.view(torch.uint8).permute(0, 2, 3, 1)
    bits = torch.nn.functional.pad(bits, (0, -S % 16)).reshape(B, G, K, -1, 16)
    return bits[..., KEY_ORDER].reshape(B, G, K, -1).contiguous().view(torch.float8_e4m3fn)


def signs(K: int) -> Tensor:
    """K numbers of +1 and -1, the same every time."""
    dice = torch.Generator().manual_seed(K)
    return torch.randint(2, (K,), generator=dice) * 2.0 - 1.0


def incoherent(x: Tensor, signs: Tensor) -> Tensor:
    """x [..., K] times diag(signs) and the Hadamard matrix over its root; x's type is kept.

    Halves are replaced by their sum and their difference, at every power of two.
    """
    K = x.shape[-1]
    y = x.float() * signs.to(x.device)
    for half in (2**i for i in range(K.bit_length() - 1)):
        left, right = y.unflatten(-1, (-1, 2, half)).unbind(-2)
        y = torch.stack((left + right, left - right), -2).flatten(-3)
    return (y * K**-0.5).to(x.dtype)


def passes(target: str, width: int = 128, causal: bool = True) -> tuple[Pass, ...]:
    """The one kernel there is."""
    if target != "sm_90":
        raise ValueError(
            f"target is {target!r}, must be 'sm_90': its tensor cores and copies are Hopper's own"
        )
    check_choice("width", width, KERNEL_TILES_FP8)
    with recording(target) as found, torch.no_grad():
        q, k, v = (
            torch.empty(1, 128, 1, width, dtype=torch.bfloat16, device="meta") for _ in range(3)
        )
        attention(q, k, v, causal)
    return tuple(found)
