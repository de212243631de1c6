"""Retention: linear attention in which each head forgets at its own constant rate.

    o_n = sum_{m <= n} decay^(n - m) (q_n . k_m) v_m

A head with decay 1 - 2^-5 has a half-life of 22 tokens, one with 1 - 2^-12 of 2,839.
"""

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor

from weft.plan.linear import DECAYS, check, checked_decays
from weft.ref.linear import gated

__all__ = ["DECAYS", "chunked", "parallel", "recurrent"]

Decay = Sequence[float] | Tensor


def recurrent(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Decay | None = None,
    initial: Tensor | None = None,
    final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """One token after the other: S_n = decay S_{n-1} + k_n v_n^T, o_n = S_n^T q_n.

    q, k [B, T, H, K], v [B, T, H, V] give o [B, T, H, V]; `decay` is a number in (0, 1] for each
    head, DECAYS(H) unless given. No scale, no rotation, no normalisation. `initial` is the state
    [B, H, K, V] before the first token, `final` asks for the one after the last; half precision
    is computed, and its state kept, in fp32. ValueError names an argument that does not fit.
    Sun et al. 2023, equation 6.
    """
    return gated.recurrent(q, k, v, _log(decay, q, k, v), initial, final)


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Decay | None = None,
    initial: Tensor | None = None,
    final: bool = False,
    chunk: int = 64,
) -> Tensor | tuple[Tensor, Tensor]:
    """The state from chunk to chunk, decayed scores inside each; else as `recurrent`.

    Row i of a chunk, counted from 0, reads decay^(i + 1) of the state before the chunk.
    Sun et al. 2023, equation 7.
    """
    return gated.chunked(q, k, v, _log(decay, q, k, v), initial, final, chunk)


def parallel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Decay | None = None,
    initial: Tensor | None = None,
    final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """(Q K^T * D) V with D_nm = decay^(n - m) for m <= n, else 0; else as `recurrent`.

    Sun et al. 2023, equation 5.
    """
    return gated.parallel(q, k, v, _log(decay, q, k, v), initial, final)


def _log(decay: Decay | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The logarithm of each head's decay for each token, [B, T, H], at least in fp32."""
    sizes = check(q, k, v)
    decays = checked_decays(decay, sizes.H)
    wide = torch.promote_types(q.dtype, torch.float32)
    logs = torch.tensor([log(x) for x in decays], dtype=wide, device=q.device)
    return logs.expand(sizes.B, sizes.T, sizes.H)
