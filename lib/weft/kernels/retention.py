"""Retention in Triton: linear attention in which each head forgets at its own constant rate.

The passes are those of `weft.kernels.linear.gated`. A decay that never changes needs no memory:
the kernels are given a view in which all tokens share one number a head, and which they read from
the cache.
"""

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor

from weft.kernels.linear import differentiable
from weft.plan.linear import check, checked_decays

__all__ = ["chunked"]


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Sequence[float] | Tensor | None = None,
    initial: Tensor | None = None,
    final: bool = False,
    chunk: int = 64,
) -> Tensor | tuple[Tensor, Tensor]:
    """The state from chunk to chunk, then all chunks at once, as weft.ref.retention.chunked.

    For fp16, bf16 and fp32, K and V of up to 256 and chunks of up to 128 tokens; sums and states
    are in fp32. A decay is a constant: it gets no gradient.
    """
    sizes = check(q, k, v)
    logs = [log(x) for x in checked_decays(decay, sizes.H)]
    g = torch.tensor(logs, dtype=torch.float32, device=q.device)
    o, last = differentiable(q, k, v, g.expand(sizes.B, sizes.T, sizes.H), initial, chunk)
    return (o, last) if final else o
