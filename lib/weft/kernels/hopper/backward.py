"""The backward passes, from tensors to launches: two passes of seven products, or one of five."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from weft.kernels.hopper.delta import delta
from weft.kernels.hopper.dkdv import dkdv
from weft.kernels.hopper.dkdv_wide import dkdv_wide
from weft.kernels.hopper.dq import dq
from weft.kernels.hopper.dqdkdv import fused
from weft.kernels.hopper.forward import LOG2E
from weft.kernels.hopper.launch import blocks, described, heads_in_cache, launch, work
from weft.plan.hopper import ROWS, by_keys, by_queries


class BackwardTiles(NamedTuple):
    """dQ's tile of keys and its rings' stages; then, of dK and dV, kernel, keys of a block, stages.

    A forward tile keeps O alone in registers; these keep more, and dQ at width 256 has room for
    32 keys only.
    """

    dq_keys: int
    dq_stages: int  # two at least
    dkdv: Callable
    dkdv_keys: int
    dkdv_stages: int = 2


BACKWARD_TILES = {  # by head width
    64: BackwardTiles(128, 3, dkdv, 128),
    128: BackwardTiles(128, 2, dkdv, 128),
    256: BackwardTiles(32, 2, dkdv_wide, 64),
}
FUSED = (64, 128)  # head widths with a backward pass in one

Gradients = tuple[Tensor, Tensor, Tensor]


def per_row(
    o_BTHK: Tensor, lse_BHT: Tensor, do_BTHK: Tensor, dlse_BHT: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What `delta` makes of each row: shift and delta, [B * H, T rounded up]."""
    B, T, H, _ = o_BTHK.shape
    padded = -(-T // 128) * 128
    shift, delta_ = (torch.empty((B * H, padded), device=o_BTHK.device) for _ in range(2))
    args = (described(o_BTHK, ROWS), described(do_BTHK, ROWS), lse_BHT, shift, delta_, T)
    launch("delta", delta, B * H * padded // ROWS, args)
    if dlse_BHT is not None:
        delta_.view(B, H, padded)[:, :, :T] -= dlse_BHT
    return shift, delta_


def two_passes(q, k, v, o, lse_BHT, do, dlse_BHT, causal: bool, scale: float) -> Gradients:
    """dQ, dK and dV: a number or two per row, then a pass for each side of the scores.

    q, o, do [B, T, H, K], k, v [B, S, G, K]. The same bits every time.
    """
    (B, T, H, K), (S, G), tiles = q.shape, k.shape[1:3], BACKWARD_TILES[q.shape[3]]
    shift, delta_ = per_row(o, lse_BHT, do, dlse_BHT)
    dq_, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    sizes = (T, S, H, H // G)

    together = heads_in_cache(S, 2 * K * k.element_size(), H // G)
    kv = described(k, tiles.dq_keys), described(v, tiles.dq_keys)
    args = (described(q, ROWS), *kv, described(do, ROWS), described(dq_, ROWS), shift, delta_)
    programs = min(blocks(q.device), B * H * -(-T // (2 * ROWS)))
    shape = T, S, B * H, together, 2 * ROWS, tiles.dq_keys, causal, programs
    p_work = work(by_queries, q.device, *shape)
    options = {"CAUSAL": causal, "STAGES": tiles.dq_stages}
    launch("dq", dq, programs, (*args, *sizes, p_work, scale * LOG2E), **options)

    together = heads_in_cache(T * (H // G), 2 * K * k.element_size(), 1)
    descs = [described(x, ROWS) for x in (q, k, v, do, shift, delta_, dk, dv)]
    programs = B * G * -(-S // tiles.dkdv_keys)
    shape = T, S, B * G, together, ROWS, tiles.dkdv_keys, causal, programs
    p_work = work(by_keys, q.device, *shape)
    options = {"CAUSAL": causal, "STAGES": tiles.dkdv_stages}
    launch("dkdv", tiles.dkdv, programs, (*descs, *sizes, p_work, scale * LOG2E), **options)
    return dq_, dk, dv


def one_pass(q, k, v, o, lse_BHT, do, dlse_BHT, causal: bool, scale: float) -> Gradients:
    """dQ, dK and dV in one pass. dQ is summed in fp32, in an order of its own, then put right.

    Beside the pass, [B, H, T, K] in fp32 is filled with zeros and read once: 12 bytes for each
    number of dQ, the sum's own additions apart.
    """
    (B, T, H, K), (S, G) = q.shape, k.shape[1:3]
    shift, delta_ = per_row(o, lse_BHT, do, dlse_BHT)
    tiles, parts = -(-T // ROWS), K // 64
    dq_sum = torch.zeros((B * H * tiles * parts * 16, 256), device=q.device)
    dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (k, v))
    keys = 2 * ROWS
    args = (described(q, ROWS), described(k, keys), described(v, keys), described(do, ROWS))
    args += (described(shift, ROWS), described(delta_, ROWS), described(dq_sum, 0, [16, 256]))
    args += (described(dk, keys), described(dv, keys), T, S, H, H // G)
    together = heads_in_cache(T * (H // G), 2 * K * k.element_size(), 1)
    programs = B * G * -(-S // keys)
    p_work = work(by_keys, q.device, T, S, B * G, together, ROWS, keys, causal, programs)
    launch("fused", fused, programs, (*args, p_work, scale * LOG2E), CAUSAL=causal, STAGES=2)

    # The order of `dqdkdv.store_dq`: warp, column / 8, row % 8, column % 8 / 2, row half, rest
    dq_ = torch.empty((B, tiles * ROWS, H, K), dtype=q.dtype, device=q.device)
    held = dq_sum.view(B, H, tiles, parts, 4, 8, 8, 4, 2, 2)
    held = held.permute(0, 2, 4, 8, 6, 1, 3, 5, 7, 9)
    torch.mul(held, scale, out=dq_.view(held.shape))
    return dq_[:, :T], dk, dv
