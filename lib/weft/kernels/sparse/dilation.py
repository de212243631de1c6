"""A dilated window is a plain one: the tokens of a residue are a sequence of their own.

Token i d + c sees tokens of its residue c alone. So d residues of H heads are d H heads of T / d
tokens, and a contiguous [B, T, H, K] is [B, T / d, d H, K] without a byte being moved. Its squares
are then as full as without dilation. Masked in place, a causal window of w keys touches
(1 + ceil(w d / UNIT)) / (1 + ceil(w / UNIT)) times as many, and sees one pair in d of them. In
place it has to stay where tokens of other residues are seen, global ones; and it may where a
residue does not fill a square.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad


def by_residue(face: Callable[..., Tensor], dilation: int, *given: Tensor) -> Tensor:
    """face(q, k, v) within each residue: o [B, T, H, V] for q, k and v [B, T, H or G, K or V].

    Where the dilation does not divide T, the first residues have a token more than the others:
    that makes two calls, and their results are copied into one.
    """
    T = given[0].shape[1]
    whole, longer = divmod(T, dilation)
    parts = []
    for first, count, tokens in ((0, longer, whole + 1), (longer, dilation - longer, whole)):
        if count and tokens:
            o = face(*(residues(x, first, count, dilation) for x in given))
            o = o.unflatten(2, (count, -1))  # [B, tokens, count, H, V]
            missing = -(-T // dilation) - tokens
            parts.append(pad(o, (0, 0) * 3 + (0, missing)) if missing else o)
    o = torch.cat(parts, 2) if len(parts) > 1 else parts[0]
    return o.flatten(1, 2)[:, :T]


def residues(x: Tensor, first: int, count: int, dilation: int) -> Tensor:
    """The tokens of so many residues from `first` on as heads: [B, tokens, count H, K], a view."""
    return x[:, first:].unfold(1, count, dilation).movedim(-1, 2).flatten(2, 3)
