"""The backward pass of FlashAttention as tiles: recompute the weights, keep no matrix.

P = exp(scores - lse) needs Q, K and one number per row, so the forward pass kept no more. Two
passes, and each writes what it owns once, in a fixed order: dQ by tiles of queries, dK and dV by
tiles of keys. Nothing is added from two sides, so the gradients are the same, bit for bit, every
time. Memory and outputs are as in weft.ref.attention.tiled.
"""

from itertools import product
from typing import Any

import torch
from torch import Tensor

from weft.plan.attention import check, cuts, looks
from weft.ref.attention.tiled import accumulator, empty, finite, heads, hide, load, scores, settle


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
    sram: Any,
    tile_q: int,
    tile_k: int,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv, from what `fa2` took and gave and the gradient do of its o.

    Moves the bytes that weft.plan.attention.backward_traffic counts; SramOverflow
    where a tile does not fit. Dao 2023, algorithm 2, in two passes instead of one
    with atomic additions.
    """
    B, T, S, H, G, _, V = check(q, k, v, scale=scale)
    _check_like("o", o, (B, T, H, V), q.dtype)
    _check_like("do", do, (B, T, H, V), q.dtype)
    _check_like("lse", lse, (B, T, H), accumulator(q))
    _, tile_q, tile_k, causal, scale = settle(q, sram, tile_q, tile_k, causal, scale)
    delta, dq, dk, dv = (torch.empty_like(x) for x in (lse, q, k, v))
    for one in heads(q, k, v, o, lse, do, delta, dq):
        with sram:
            for rows in cuts(T, tile_q):
                dq_rows(*one, rows, sram, tile_k, causal, scale)
    for b, g in product(range(B), range(G)):
        h = slice(g * H // G, (g + 1) * H // G)  # the query heads that share this k and v
        streamed = [x[b, :, h] for x in (q, lse, do, delta)]
        shared = [x[b, :, g] for x in (k, v, dk, dv)]
        with sram:
            for cols in cuts(S, tile_k):
                dkdv_cols(*streamed, *shared, cols, sram, tile_q, causal, scale)
    return dq, dk, dv


def dq_rows(q, k, v, o, lse, do, delta, dq, rows, sram, tile_k, causal, scale):
    """dQ: stream the keys past a tile of queries; leave its D = rowsum(dO * O)."""
    b_q, b_do = load(sram, q[rows]).mul_(scale), load(sram, do[rows])
    b_lse = load(sram, lse[rows])
    b_delta = load(sram, o[rows]).mul_(b_do).sum(1)
    sram.store(delta[rows], b_delta)
    b_dq = empty(sram, q[rows])
    for cols in cuts(len(k), tile_k):
        if looks(rows, cols, len(q), len(k), causal) != "none":
            hidden = hide(rows, cols, q, k, causal)
            b_k, b_v = load(sram, k[cols]), load(sram, v[cols])
            b_p = weights(b_q, b_k, b_lse, hidden)
            b_dq.addmm_(gradient(b_p, b_v, b_do, b_delta), b_k)
            del b_k, b_v, b_p
    sram.store(dq[rows], b_dq.mul_(scale))


def dkdv_cols(q, lse, do, delta, k, v, dk, dv, cols, sram, tile_q, causal, scale):
    """dK, dV: stream the queries of all heads that share a tile of keys past it.

    q, do [T, H/G, ...] and lse, delta [T, H/G] are the group's, k, v, dk, dv [S,
    ...].
    """
    b_k, b_v = load(sram, k[cols]), load(sram, v[cols])
    b_dk, b_dv = empty(sram, k[cols]), empty(sram, v[cols])
    for h, rows in product(range(q.shape[1]), cuts(len(q), tile_q)):
        if looks(rows, cols, len(q), len(k), causal) != "none":
            hidden = hide(rows, cols, q, k, causal)
            b_q, b_do = load(sram, q[rows, h]).mul_(scale), load(sram, do[rows, h])
            b_p = weights(b_q, b_k, load(sram, lse[rows, h]), hidden)
            b_dv.addmm_(b_p.T, b_do)
            b_ds = gradient(b_p, b_v, b_do, load(sram, delta[rows, h]))
            b_dk.addmm_(b_ds.T, b_q)
            del b_q, b_do, b_p, b_ds
    sram.store(dk[cols], b_dk)
    sram.store(dv[cols], b_dv)


def weights(
    b_q: Tensor,
    b_k: Tensor,
    b_lse: Tensor,
    hidden: Tensor | None,
) -> Tensor:
    """The softmax of a tile once more: exp(scores - lse)."""
    return scores(b_q, b_k, hidden).sub_(finite(b_lse)[:, None]).exp_()


def gradient(b_p: Tensor, b_v: Tensor, b_do: Tensor, b_delta: Tensor) -> Tensor:
    """The gradient of the scores, P * (dP - D) with dP = dO V^T, in P's place."""
    return b_p.mul_((b_do @ b_v.T).sub_(b_delta[:, None]))


def _check_like(name: str, x: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if not isinstance(x, Tensor) or tuple(x.shape) != shape or x.dtype != dtype:
        got = f"{list(x.shape)}, {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} is {got}, must be {list(shape)}, {dtype}")
