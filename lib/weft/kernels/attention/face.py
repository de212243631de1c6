"""Attention as fast as Triton lets it be: FlashAttention-2 forward and backward."""

from torch import Tensor

from weft.kernels.attention.call import call, compiled
from weft.kernels.attention.fa2 import forward
from weft.kernels.code import Pass


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    mask: Tensor | None = None,
    lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(q k^T * scale) v, tile by tile."""
    return call(forward, q, k, v, causal, scale, mask, lse)


def passes(target: str, **kind) -> tuple[Pass, ...]:
    """The kernels of the forward and the backward pass, as they are launched on a chip."""
    return compiled(forward, target, with_backward=True, **kind)
