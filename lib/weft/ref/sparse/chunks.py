"""Longformer's window by dense products of overlapping chunks, as its authors wrote it in torch."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from weft.plan.arguments import whole
from weft.plan.sparse import check_longformer
from weft.ref.attention import INF, softmax


def sliding_chunks(
    q: Tensor, k: Tensor, v: Tensor, window: int, scale: float | None = None
) -> Tensor:
    """A window of keys on each side of a query, by products that any library of matrices has.

    The tokens are cut into chunks of 2 `window`, each overlapping the next by half, and every
    chunk's queries meet its keys: 4 window scores for a query, which sees 2 window + 1. That is
    why it takes twice the memory: two corners of each chunk are computed and thrown away. What is
    kept becomes a band of scores, whose softmax meets 3 `window` values, 1.5 times what it weighs.

    It does not dilate: a chunk is a slice of neighbours, of which a window with dilation d sees
    one in d. Chunks would be d times as long, and all but one score in 2 d thrown away.

    q [B, T, H, K], k [B, T, G, K], v [B, T, G, V] give o [B, T, H, V] for any T; the original
    wants a multiple of 2 `window`, as Hugging Face's model, which pads. `scale` is 1 / sqrt(K)
    unless given. ValueError names an argument that does not fit: `window` is at least 1.
    """
    (_, T, _, H, G, K, _), w, _ = check_longformer(q, k, v, whole("window", window), scale=scale)
    w = min(w, T)
    dtype, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
    k, v = (x.repeat_interleave(H // G, dim=2) for x in (k, v))
    blocks = -(-T // w)  # of w tokens; an empty one is added at each end
    ends = 0, 0, w, (blocks + 1) * w - T
    q, k, v = (pad(x.to(wide).transpose(1, 2), ends) for x in (q, k, v))
    chunks_q, chunks_k = (x.unfold(2, 2 * w, w) for x in (q, k))  # [B, H, blocks + 1, K, 2 w]
    s = chunks_q.mT @ chunks_k * (K**-0.5 if scale is None else scale)
    # A block is the second half of one chunk, where it meets the keys before it, and the first
    # half of the next, where it meets its own and those after it.
    row = torch.arange(w, device=q.device).unsqueeze(1)
    offset = torch.arange(-w, w + 1, device=q.device)
    band = torch.cat([
        _diagonals(s[:, :, :-1, w:], row + w + offset[:w]),
        _diagonals(s[:, :, 1:, :w], row + offset[w:]),
    ], -1)  # fmt: skip  # [B, H, blocks, w, 2 w + 1]
    key = torch.arange(0, blocks * w, w, device=q.device).view(-1, 1, 1) + row + offset
    p = softmax(band.masked_fill((key < 0) | (key >= T), -INF))[0]
    spread = p.new_zeros(*p.shape[:-1], 3 * w)
    spread.scatter_(-1, (row + w + offset).expand_as(p), p)
    o = spread @ v.unfold(2, 3 * w, w).mT  # [B, H, blocks, w, V]
    return o.flatten(2, 3)[:, :, :T].transpose(1, 2).to(dtype)


def _diagonals(s: Tensor, columns: Tensor) -> Tensor:
    """Of each row the scores in these columns, which step right from row to row."""
    return s.gather(-1, columns.expand(*s.shape[:-1], -1))
