"""FlashAttention-3 in Gluon: four versions forward, and a backward pass, for Hopper GPUs.

Tile order, for whoever wants to follow it. 64 queries belong to a warpgroup, 2 or 3 warpgroups to
a block (widths 128 and 256, width 64). A piece of work is one head's tile of 128 or 192 queries;
`hopper_tile.place` says which is the i-th, last tiles first, and a block takes every piece whose
number is its own modulo the number of blocks. Keys come in tiles of 128 (64 at width 256) from the
right to the left: from the last that any query of the piece sees (`hopper_tile.span`, at least
one) to tile 0. Each tile of scores is multiplied by scale * log2(e) and hidden where a query does
not look; maximum, sum and output are kept per row and rescaled after each tile; weights are rounded
to the input's type before they meet the values. The output is divided by the sum at the end.

Shah et al. 2024, "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision".
"""

from functools import partial
from math import log2
from typing import NamedTuple

import torch
from torch import Tensor

from weft.kernels import hopper_overlapped, hopper_pingpong, hopper_specialized
from weft.kernels.compile import Pass
from weft.kernels.gluon import TensorDescriptor, gl
from weft.kernels.hopper_simple import simple as simple_kernel
from weft.plan.attention import check

ROWS = 64  # queries of a warpgroup: what one of its products takes
L2 = 32 * 2**20  # bytes of a Hopper GPU's 50 MiB that keys and values may count on
LOG2E = log2(2.718281828459045)


class Tiling(NamedTuple):
    """Keys in a tile, tiles of keys (and of values) in shared memory, warpgroups that compute."""

    keys: int
    stages: int
    groups: int


TILINGS = {64: Tiling(128, 4, 3), 128: Tiling(128, 2, 2), 256: Tiling(64, 2, 2)}


CONSUMERS = {
    "specialized": hopper_specialized.consume,
    "pingpong": hopper_pingpong.consume,
    "overlapped": hopper_overlapped.consume,
}


def forward(version, q, k, v, causal, scale):
    T, S, H, G, K = q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3]
    tiling = TILINGS[K]
    groups = 2 if version == "simple" else tiling.groups
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((q.shape[0], H, T), dtype=torch.float32, device=q.device)
    rows = 2 * ROWS if version == "simple" else ROWS
    descs = [descriptor(q, rows), descriptor(k, tiling.keys), descriptor(v, tiling.keys), descriptor(o, rows)]
    heads = q.shape[0] * H
    work = heads * -(-T // (groups * ROWS))
    group = max(1, L2 // (S * 2 * K * q.element_size())) * (H // G)
    args = [*descs, lse, T, S, H, H // G, heads, group, scale * LOG2E]
    meta = dict(CAUSAL=causal, TILE_K=tiling.keys, STAGES=tiling.stages)
    from weft.kernels import gluon_interpreter
    if version == "simple":
        gluon_interpreter.run(simple_kernel, work, args, seed=SEED, **(meta | dict(STAGES=2)))
    else:
        gluon_interpreter.run(hopper_specialized.forward, min(work, 3), args, seed=SEED,
            CONSUME=CONSUMERS[version], GROUPS=groups, **meta)
    return o, lse

SEED = 0

def descriptor(x, rows):
    box = [1, rows, 1, x.shape[3]]
    return TensorDescriptor(x, list(x.shape), list(x.stride()), box, gl.NVMMASharedLayout(128, 8 * x.element_size(), rank=4))
