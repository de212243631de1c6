"""FlashAttention as tiles in plain torch, beside the three passes that it replaces.

The caller gives the tile memory, a `weft.meter.Sram`: within `with sram:` arithmetic finds nothing
but what was loaded, so that what it holds and what it moves is counted. Each algorithm is written
for one head, q [T, K], k [S, K], v [S, V], and fills outputs that lie in slow memory, as a kernel
does. The scores of a tile exist only there: that is the whole idea.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from weft.plan.arguments import sizes
from weft.plan.attention import check, cuts, looks

INF = float("inf")


# --- for all heads --------------------------------------------------------------------------------


def naive(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sram: Any,
    tile_q: int,
    tile_k: int,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Scores, softmax, output: three passes, and a T x S matrix in slow memory.

    q [B, T, H, K], k [B, S, G, K], v [B, S, G, V] give o [B, T, H, V]. Moves the
    bytes that weft.plan.attention.traffic counts, and raises SramOverflow where a
    tile, or a row of the matrix, does not fit. Dao et al. 2022, algorithm 0.
    """
    B, T, S, H, _, _, V = check(q, k, v, scale=scale)
    choices = settle(q, sram, tile_q, tile_k, causal, scale)
    o, p = q.new_empty(B, T, H, V), q.new_empty(T, S)
    for q_h, k_h, v_h, o_h in heads(q, k, v, o):
        with sram:
            naive_head(q_h, k_h, v_h, p, o_h, *choices)
    return o


def fa1(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sram: Any,
    tile_q: int,
    tile_k: int,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """FlashAttention-1: K and V outside, and Q, O, m, l come and go.

    Gives o [B, T, H, V], each row's maximum m and its sum l of exp(score - m), [B,
    T, H]: the log-sum-exp is m + log l. Otherwise as `naive`. Dao et al. 2022,
    algorithm 1.
    """
    B, T, _, H, _, _, V = check(q, k, v, scale=scale)
    choices = settle(q, sram, tile_q, tile_k, causal, scale)
    o = q.new_empty(B, T, H, V)
    m, ell = q.new_empty(2, B, T, H, dtype=accumulator(q))
    for one in heads(q, k, v, o, m, ell):
        with sram:
            fa1_head(*one, *choices)
    return o, m, ell


def fa2(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sram: Any,
    tile_q: int,
    tile_k: int,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """FlashAttention-2: Q outside, and its O, m and l stay until they are done.

    Gives o [B, T, H, V] and the log-sum-exp [B, T, H]. Otherwise as `naive`. Dao
    2023, algorithm 1.
    """
    B, T, _, H, _, _, V = check(q, k, v, scale=scale)
    choices = settle(q, sram, tile_q, tile_k, causal, scale)
    o, lse = q.new_empty(B, T, H, V), q.new_empty(B, T, H, dtype=accumulator(q))
    for one in heads(q, k, v, o, lse):
        with sram:
            fa2_head(*one, *choices)
    return o, lse


def settle(
    q: Tensor,
    sram: Any,
    tile_q: int,
    tile_k: int,
    causal: bool,
    scale: float | None,
) -> tuple[Any, int, int, bool, float]:
    """The choices for one head, with the scale that there is when none is given."""
    if not all(hasattr(sram, name) for name in ("load", "store", "alloc")):
        kind = type(sram).__name__
        raise ValueError(f"sram is a {kind}, must be a tile memory, as weft.meter.Sram is")
    tile_q, tile_k = sizes(tile_q=tile_q, tile_k=tile_k)
    return sram, tile_q, tile_k, bool(causal), q.shape[3] ** -0.5 if scale is None else scale


def heads(q: Tensor, k: Tensor, v: Tensor, *outputs: Tensor) -> Iterator[list[Tensor]]:
    """Views of each head in turn: its q, the k and v it shares, its outputs."""
    B, H, G = q.shape[0], q.shape[2], k.shape[2]
    for b in range(B):
        for h in range(H):
            g = h // (H // G)
            yield [q[b, :, h], k[b, :, g], v[b, :, g], *(x[b, :, h] for x in outputs)]


def accumulator(x: Tensor) -> torch.dtype:
    """What sums are kept in: fp32, or fp64 for fp64."""
    return torch.promote_types(x.dtype, torch.float32)


# --- one head -------------------------------------------------------------------------------------


def naive_head(q, k, v, p, o, sram, tile_q, tile_k, causal, scale):
    """Three passes; p [T, S] holds first the scores, then the weights."""
    T, S = len(q), len(k)
    for rows in cuts(T, tile_q):
        b_q = load(sram, q[rows]).mul_(scale)
        for cols in cuts(S, tile_k):
            hidden = hide(rows, cols, q, k, causal)
            sram.store(p[rows, cols], scores(b_q, load(sram, k[cols]), hidden))
        del b_q
    for i in range(T):
        sram.store(p[i], softmax_(load(sram, p[i])))
    for rows in cuts(T, tile_q):
        b_o = empty(sram, o[rows])
        for cols in cuts(S, tile_k):
            b_p = load(sram, p[rows, cols])
            b_o.addmm_(b_p, load(sram, v[cols]))
            del b_p
        sram.store(o[rows], b_o)
        del b_o


def fa1_head(q, k, v, o, m, ell, sram, tile_q, tile_k, causal, scale):
    """For each tile of keys, visit every tile of queries that looks at it."""
    T, S = len(q), len(k)
    for rows in cuts(T, tile_q):
        sram.store(o[rows], empty(sram, o[rows]))
        sram.store(m[rows], empty(sram, m[rows], fill=-INF))
        sram.store(ell[rows], empty(sram, ell[rows]))
    for cols in cuts(S, tile_k):
        b_k, b_v = load(sram, k[cols]), load(sram, v[cols])
        for rows in cuts(T, tile_q):
            if looks(rows, cols, T, S, causal) != "none":
                hidden = hide(rows, cols, q, k, causal)
                row = q[rows], o[rows], m[rows], ell[rows]
                fa1_visit(*row, b_k, b_v, hidden, sram, scale)
        del b_k, b_v


def fa1_visit(q, o, m, ell, b_k, b_v, hidden, sram, scale):
    """Merge one tile's own softmax into rows already divided: rescale both."""
    b_q, b_o = load(sram, q).mul_(scale), load(sram, o)
    b_m, b_l = load(sram, m), load(sram, ell)
    b_p = scores(b_q, b_k, hidden)
    tile_m = b_p.amax(1)
    new_m = torch.maximum(b_m, tile_m)
    b_p.sub_(finite(tile_m)[:, None]).exp_()
    tile_l = b_p.sum(1)
    old = b_m.sub_(finite(new_m)).exp_().mul_(b_l)
    new = tile_m.sub_(finite(new_m)).exp_()
    b_l = tile_l.mul_(new).add_(old)
    tile_o = b_p @ b_v
    b_o.mul_(old.div_(positive(b_l))[:, None])
    b_o.add_(tile_o.mul_(new.div_(positive(b_l))[:, None]))
    sram.store(o, b_o)
    sram.store(m, new_m)
    sram.store(ell, b_l)


def fa2_head(q, k, v, o, lse, sram, tile_q, tile_k, causal, scale):
    """Each tile of queries on its own: two of them share K and V, no more."""
    for rows in cuts(len(q), tile_q):
        fa2_rows(q, k, v, o, lse, rows, sram, tile_k, causal, scale)


def fa2_rows(q, k, v, o, lse, rows, sram, tile_k, causal, scale):
    """Stream the keys past one tile of queries; divide once, at the end."""
    T, S = len(q), len(k)
    b_q, b_o = load(sram, q[rows]).mul_(scale), empty(sram, o[rows])
    b_m, b_l = empty(sram, lse[rows], fill=-INF), empty(sram, lse[rows])
    for cols in cuts(S, tile_k):
        if looks(rows, cols, T, S, causal) != "none":
            hidden = hide(rows, cols, q, k, causal)
            b_k, b_v = load(sram, k[cols]), load(sram, v[cols])
            fa2_visit(b_q, b_k, b_v, b_o, b_m, b_l, hidden)
            del b_k, b_v
    b_l = positive(b_l)
    sram.store(o[rows], b_o.div_(b_l[:, None]))
    sram.store(lse[rows], b_m.add_(b_l.log_()))


def fa2_visit(b_q, b_k, b_v, b_o, b_m, b_l, hidden):
    """Take a tile of keys into sums not yet divided: rescale what was there."""
    b_p = scores(b_q, b_k, hidden)
    new_m = torch.maximum(b_m, b_p.amax(1))
    b_p.sub_(finite(new_m)[:, None]).exp_()
    fade = b_m.sub_(finite(new_m)).exp_()
    b_l.mul_(fade).add_(b_p.sum(1))
    b_o.mul_(fade[:, None]).addmm_(b_p, b_v)
    b_m.copy_(new_m)


# --- one tile -------------------------------------------------------------------------------------


def load(sram: Any, x: Tensor) -> Tensor:
    """A tile of x, in at least fp32."""
    return sram.load(x).to(accumulator(x))


def empty(sram: Any, x: Tensor, fill: float = 0.0) -> Tensor:
    """A tile as large as x, filled with one value, in at least fp32."""
    return sram.alloc(x.shape, fill=fill, dtype=accumulator(x), device=x.device)


def hide(
    rows: slice,
    cols: slice,
    q: Tensor,
    k: Tensor,
    causal: bool,
) -> Tensor | None:
    """True where a query of the tile must not look at a key; None where all may."""
    T, S = len(q), len(k)
    if looks(rows, cols, T, S, causal) == "all":
        return None
    size = rows.stop - rows.start, cols.stop - cols.start
    hidden = torch.ones(size, dtype=torch.bool, device=q.device)
    return hidden.triu_(1 + rows.start - cols.start + S - T)


def scores(b_q: Tensor, b_k: Tensor, hidden: Tensor | None) -> Tensor:
    """The scores of a tile, -inf where hidden."""
    b_s = b_q @ b_k.T
    return b_s if hidden is None else b_s.masked_fill_(hidden, -INF)


def softmax_(b_p: Tensor) -> Tensor:
    """The softmax of a whole row of scores, in place."""
    b_p.sub_(finite(b_p.amax(0))).exp_()
    return b_p.div_(positive(b_p.sum(0)))


def finite(m: Tensor) -> Tensor:
    """A maximum to subtract: 0 where nothing was seen, for -inf - -inf is NaN."""
    return m.masked_fill(m == -INF, 0.0)


def positive(ell: Tensor) -> Tensor:
    """A sum to divide by: 1 where nothing was seen."""
    return ell.masked_fill(ell == 0.0, 1.0)
