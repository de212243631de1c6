"""Attention to some of the keys: a window with global tokens, or blocks from a layout."""

import torch
from torch import Tensor

from weft.plan.sparse import check_layout, check_longformer
from weft.ref.attention import attention


def longformer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    dilation: int = 1,
    causal: bool = False,
    scale: float | None = None,
    global_mask: Tensor | None = None,
    global_q: Tensor | None = None,
    global_k: Tensor | None = None,
    global_v: Tensor | None = None,
) -> Tensor:
    """A window of keys around each query, and tokens that see all and are seen by all.

    A query sees itself and `window` keys on each side, `dilation` apart; causal hides what is
    later, from everyone. Tokens where `global_mask` [B, T] is True are seen by every query, and
    their own rows see every key. Those rows, and they alone, are computed from global_q, global_k
    and global_v where these are given; others see a global token through its k and v.

    q [B, T, H, K], k [B, T, G, K], v [B, T, G, V], the global ones likewise, give o [B, T, H, V].
    `scale` is 1 / sqrt(K) unless given. ValueError names an argument that does not fit.
    Beltagy et al. 2020, section 3.1.
    """
    others = global_q, global_k, global_v
    (_, T, *_), window, dilation = check_longformer(
        q, k, v, window, dilation, scale, global_mask, *others
    )
    back = torch.arange(T, device=q.device).unsqueeze(1) - torch.arange(T, device=q.device)
    near = (back.abs() <= window * dilation) & (back % dilation == 0)
    allowed = (back >= 0) if causal else torch.ones_like(near)
    if global_mask is None:
        return attention(q, k, v, scale=scale, mask=near & allowed)
    sees = (near | global_mask[:, None, None, :]) & allowed  # [B, 1, T, T]
    local = attention(q, k, v, scale=scale, mask=sees)
    given = (y if x is None else x for x, y in zip(others, (q, k, v), strict=True))
    return torch.where(
        global_mask[:, :, None, None], attention(*given, causal=causal, scale=scale), local
    )


def block_sparse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Tensor,
    block: int,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Attention within the blocks of queries and keys that a layout allows.

    layout [H or 1, T / block, S / block] in bool, both rounded up: block r of queries sees block
    c of keys where layout[h, r, c] is True. A causal query sees no key after S - T + its own
    position. A row without any key is 0.

    q [B, T, H, K], k [B, S, G, K], v [B, S, G, V] give o [B, T, H, V]. `scale` is 1 / sqrt(K)
    unless given. ValueError names an argument that does not fit. Child et al. 2019, section 4.3.
    """
    (_, T, S, *_), block = check_layout(q, k, v, layout, block, scale)
    mask = layout.repeat_interleave(block, 1).repeat_interleave(block, 2)[:, :T, :S]
    return attention(q, k, v, causal=causal, scale=scale, mask=mask)
