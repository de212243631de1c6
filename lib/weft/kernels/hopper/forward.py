"""The forward pass of each version: from tensors to a launch.

Tile order, for whoever wants to follow it. 64 queries belong to a warpgroup, 2 or 3 warpgroups to
a block (`weft.plan.hopper.KERNEL_TILES`). A piece of work is one head's tile of 128 or 192
queries; `weft.plan.hopper.tile_scheduler` deals the pieces to the blocks. Tiles of keys come from
the right to the left: from the last that any query of the piece sees (`tile.key_tiles`, at least
one) to tile 0. Each tile of scores is multiplied by scale * log2(e) and masked; maximum, sum and
output are kept per row and rescaled after each tile; probabilities are rounded to the input's type
before they meet the values. The output is divided by the sum at the end.

Shah et al. 2024, "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision".
"""

from math import e, log2

import torch
from torch import Tensor

from weft.kernels.hopper import v2_specialized, v3_pingpong, v4_overlapped
from weft.kernels.hopper.launch import blocks, described, heads_in_cache, launch, work
from weft.kernels.hopper.v1_simple import simple
from weft.plan.hopper import KERNEL_TILES, ROWS, by_queries

LOG2E = log2(e)
CONSUMERS = {
    "specialized": v2_specialized.consumer,
    "pingpong": v3_pingpong.consumer,
    "overlapped": v4_overlapped.consumer,
}
VERSIONS = ("simple", *CONSUMERS)


def forward(
    version: str, q_BTHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """O [B, T, H, K] and its log-sum-exp [B, H, T], by one of the versions."""
    (B, T, H, K), (S, G), tile = q_BTHK.shape, k_BSGK.shape[1:3], KERNEL_TILES[q_BTHK.shape[3]]
    device = q_BTHK.device
    o_BTHK = torch.empty((B, T, H, K), dtype=q_BTHK.dtype, device=device)
    lse_BHT = torch.empty((B, H, T), dtype=torch.float32, device=device)
    together = heads_in_cache(S, 2 * K * k_BSGK.element_size(), H // G)
    rows = 2 * ROWS if version == "simple" else tile.rows
    programs = B * H * -(-T // rows)
    if version != "simple":
        programs = min(programs, blocks(device))
    p_work = work(by_queries, device, T, S, B * H, together, rows, tile.keys, causal, programs)
    sizes = (T, S, H, H // G, p_work, scale * LOG2E)
    kv = described(k_BSGK, tile.keys), described(v_BSGK, tile.keys)
    if version == "simple":
        args = (described(q_BTHK, rows), *kv, described(o_BTHK, rows), lse_BHT, *sizes)
        launch("forward", simple, programs, args, 8, CAUSAL=causal, STAGES=2)
    else:
        args = (described(q_BTHK, ROWS), *kv, described(o_BTHK, ROWS), lse_BHT, *sizes)
        options = {"STAGES": tile.stages, "GROUPS": tile.warpgroups, "CAUSAL": causal}
        options |= {"CONSUMER": CONSUMERS[version]}
        launch("forward", v2_specialized.forward, programs, args, **options)
    return o_BTHK, lse_BHT
