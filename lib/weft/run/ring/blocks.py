"""A rank's queries and some keys: the visible rectangles computed, and merged into what there is.

Forward keeps for each query the output so far and the log-sum-exp of its scores, in fp32 at least.
Backward uses those of the whole row, so that blocks do not depend on each other.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.plan.ring.visible import Rectangle
from weft.ref.attention import INF
from weft.ref.attention import attention as reference

Kernel = Callable[..., Any]
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def check_kernel(kernel: object) -> None:
    """Refuse what is no function, where one is given."""
    if kernel is not None and not callable(kernel):
        raise ValueError(f"kernel is {kernel!r}, must be a function or None")


class BlockKernel(NamedTuple):
    """What computes a rectangle: a function with ref.attention's face, or None, and the scale.

    None is torch's own flash attention on a processor, and the reference anywhere else.
    """

    kernel: Kernel | None = None
    scale: float | None = None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, kind: Rectangle) -> tuple[Tensor, Tensor]:
        """o [B, rows, H, V] and lse [B, rows, H] of the rectangle alone."""
        causal, mask = kind.kind == "causal", _mask(kind, q)
        if not self._flash(q, v):
            one = self.kernel or reference
            return one(q, k, v, causal=causal, scale=self.scale, mask=mask, lse=True)
        heads = (x.transpose(1, 2) for x in (q, k, v))
        o, lse = FLASH(*heads, 0.0, causal, attn_mask=_added(mask, q), scale=self.scale)
        return o.transpose(1, 2), lse.transpose(1, 2)

    def whole(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """o and lse of queries that see all of some keys."""
        return self.forward(q, k, v, Rectangle(slice(q.shape[1]), slice(k.shape[1]), "all"))

    def backward(
        self, q: Tensor, k: Tensor, v: Tensor, kind: Rectangle, rows: "QueryRows"
    ) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dk and dv of the rectangle, from o and lse of the whole rows."""
        causal, mask = kind.kind == "causal", _mask(kind, q)
        if self._flash(q, v):
            heads = (x.transpose(1, 2) for x in (rows.do, q, k, v, rows.o, rows.lse))
            how = {"attn_mask": _added(mask, q), "scale": self.scale}
            found = FLASH_BACKWARD(*heads, 0.0, causal, **how)
            return tuple(x.transpose(1, 2) for x in found)
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            one = self.kernel or reference
            o, lse = one(*inputs, causal=causal, scale=self.scale, mask=mask, lse=True)
            # The whole is the sum of w o over parts, w = exp(lse_part - lse): the rule of products.
            w = (lse.detach() - rows.lse).exp()
            do = w.unsqueeze(-1) * rows.do
            dlse = (do * o.detach()).sum(-1) - w * rows.delta
            # A sum, because torch loads sympy, for seconds, where gradients are handed to it.
            total = (o * do.to(o.dtype)).sum() + (lse * dlse).sum()
        return torch.autograd.grad(total, inputs)

    def _flash(self, q: Tensor, v: Tensor) -> bool:
        return self.kernel is None and q.device.type == "cpu" and q.shape[-1] == v.shape[-1]


class QueryRows(NamedTuple):
    """What backward knows of queries: their o, lse and gradient, and delta = rowsum(do * o)."""

    o: Tensor
    lse: Tensor
    do: Tensor
    delta: Tensor

    @classmethod
    def of(cls, o: Tensor, lse: Tensor, do: Tensor) -> "QueryRows":
        """What is known of queries when their gradient comes."""
        return cls(o, lse, do, (do.to(lse.dtype) * o).sum(-1))

    def cut(self, at: slice) -> "QueryRows":
        """Some of them."""
        return QueryRows(*(x[:, at] for x in self))


def begin(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """o [B, T, H, V] and lse [B, T, H] of queries that have seen no key, in fp32 at least."""
    wide = torch.promote_types(q.dtype, torch.float32)
    o = q.new_zeros(*q.shape[:3], v.shape[-1], dtype=wide)
    return o, o.new_full(q.shape[:3], -INF)


def first(
    q: Tensor, k: Tensor, v: Tensor, visible: Sequence[Rectangle], how: BlockKernel
) -> tuple[Tensor, Tensor]:
    """o and lse of queries that have seen these keys alone, in fp32 at least."""
    if len(visible) == 1 and visible[0].rows == slice(0, q.shape[1]):
        keys = slice(None), visible[0].cols
        o, lse = how.forward(q, k[keys], v[keys], visible[0])
        return o.to(lse.dtype), lse
    o, lse = begin(q, v)
    attend(o, lse, q, k, v, visible, how)
    return o, lse


def attend(
    o: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Sequence[Rectangle],
    how: BlockKernel,
) -> None:
    """Merge attention over some more keys into o and lse, in place."""
    for part in visible:
        at = slice(None), part.rows
        keys = slice(None), part.cols
        merge_(o[at], lse[at], *how.forward(q[at], k[keys], v[keys], part))


def merge_(o: Tensor, lse: Tensor, o_part: Tensor, lse_part: Tensor) -> None:
    """weft.ref.attention.merge in place, of a part whose every row has seen a key."""
    both = torch.logaddexp(lse, lse_part)
    o.mul_((lse - both).exp_().unsqueeze(-1))
    o.addcmul_(o_part.to(o.dtype), (lse_part - both).exp_().unsqueeze(-1))
    lse.copy_(both)


def attend_backward(
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    rows: QueryRows,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Sequence[Rectangle],
    how: BlockKernel,
) -> None:
    """Add to dq, dk and dv, in place, what these queries and some keys give each other."""
    for part in visible:
        at, keys = (slice(None), part.rows), (slice(None), part.cols)
        found = how.backward(q[at], k[keys], v[keys], part, rows.cut(part.rows))
        for whole, one in zip((dq[at], dk[keys], dv[keys]), found, strict=True):
            whole.add_(one)


def _mask(part: Rectangle, q: Tensor) -> Tensor | None:
    """True where a query of a band sees a key; None of other rectangles."""
    if part.kind != "band":
        return None
    rows, cols = (
        torch.arange(at.stop - at.start, device=q.device) for at in (part.rows, part.cols)
    )
    ahead = cols - rows.unsqueeze(-1)
    return (ahead >= part.low) & (ahead < part.high)


def _added(mask: Tensor | None, q: Tensor) -> Tensor | None:
    """The same as torch's flash attention takes it: what is added to the scores."""
    if mask is None:
        return None
    return q.new_zeros(mask.shape).masked_fill_(~mask, -INF)
