"""A token's attention over a cache that lies over ranks: parts are merged, no key is sent.

Each rank attends to the keys that it has, and tells its output with the log-sum-exp. Merging is
associative, so ranks merge in pairs, of twice as many keys each round: a tree, not a ring. What is
sent does not depend on the length of the cache.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from weft.plan.attention import check
from weft.plan.ring.decoding import merge_hops
from weft.ref.attention import merge
from weft.run.collectives import Group, agreed, group_rank_size
from weft.run.ring.blocks import BlockKernel, Kernel, begin, check_kernel
from weft.run.ring.rotate import wait


def decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    world: Group,
    scale: float | None = None,
    kernel: Kernel | None = None,
) -> Tensor:
    """o [B, T, H, V] of queries [B, T, H, K] that see all keys of all ranks, on every rank.

    q, the same on every rank, is the last token's, or those of several that do not see each other.
    k [B, S, G, K] and v [B, S, G, V] are this rank's part of the cache, in any order, of as many
    tokens as it has, none included; the token's own are in one of the parts. `kernel` as in
    `attention`. Sends what weft.plan.ring.sent_in_decode counts. No gradient.

    ValueError, the same on all ranks, names what does not fit or differs, and an empty cache.
    """
    group, rank, n = group_rank_size(world)

    def mine() -> tuple[int, dict[str, object]]:
        check_kernel(kernel)
        have = k.shape[1] if isinstance(k, Tensor) and k.dim() == 4 else 1
        some = (k, v) if have else (x.new_zeros(x.shape[0], 1, *x.shape[2:]) for x in (k, v))
        sizes = check(q, *some, scale=scale)
        form = {"q's shape": list(q.shape), "G": sizes.G, "V": sizes.V, "scale": scale}
        return have, form | {"q's dtype": str(q.dtype)}

    counts = agreed(group, mine)
    if not any(counts):
        raise ValueError("k has 0 tokens on all ranks, must have at least one on one of them")
    with torch.no_grad():
        o, lse = begin(q, v)
        if counts[rank]:
            o, lse = BlockKernel(kernel, scale).whole(q, k, v)
        part = torch.cat([o.to(lse.dtype), lse.unsqueeze(-1)], -1).contiguous()
        for phase in merge_hops(n):
            part = _told(part, phase, group, rank)
    return part[..., :-1].to(q.dtype)


def _told(part: Tensor, phase: list, group: dist.ProcessGroup, rank: int) -> Tensor:
    """What this rank has after a round: its part with another's, or the whole."""
    came, calls = None, []
    for hop in phase:
        if hop.source == rank:
            calls.append((dist.isend, part, hop.target))
        elif hop.target == rank:
            came, reduce = torch.empty_like(part), hop.reduce
            calls.append((dist.irecv, came, hop.source))
    messages = [
        dist.P2POp(call, x.view(torch.uint8), group=group, group_peer=peer)
        for call, x, peer in calls
    ]
    wait(dist.batch_isend_irecv(messages) if messages else [])
    if came is None or not reduce:
        return part if came is None else came
    halves = [y for x in (part, came) for y in (x[..., :-1], x[..., -1])]
    o, lse = merge(*halves)
    return torch.cat([o, lse.unsqueeze(-1)], -1)
