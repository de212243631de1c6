"""Decoding with a cache in blocks: gather what belongs to a sequence, then plain attention."""

import torch
from torch import Tensor

from weft.plan.decode import check, look
from weft.ref.attention import attention


@torch.no_grad()
def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    scale: float | None = None,
) -> Tensor:
    """The attention of one query per sequence, on keys and values in blocks.

    Token i of sequence b lies in slot i % block of block block_table[b, i //
    block]. Blocks may come in any order and be shared; what no sequence's length
    covers is never read, whatever stands there, in the caches or in the table. A
    sequence of length 0 gives 0.

    q [B, 1, H, K], k_cache [blocks, block, G, K], v_cache [blocks, block, G, V],
    block_table [B, most blocks] and lengths [B] in int32 or int64 give o [B, 1, H,
    V]. Nothing here has a gradient. ValueError names an argument that does not fit.
    Kwon et al. 2023, equation 4.
    """
    sizes = check(q, k_cache, v_cache, block_table, lengths, scale)
    look(sizes, block_table, lengths)
    o_B1HV = q.new_zeros(sizes.B, 1, sizes.H, sizes.V)
    for b, S in enumerate(lengths.tolist()):
        if S:
            mine = block_table[b, : -(-S // sizes.block)]
            k, v = (x[mine].flatten(0, 1)[None, :S] for x in (k_cache, v_cache))
            o_B1HV[b] = attention(q[b : b + 1], k, v, scale=scale)[0]
    return o_B1HV
