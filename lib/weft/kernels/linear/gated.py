"""Linear attention that forgets, in chunks: the decay of a token is one number for each head."""

from torch import Tensor

from weft.kernels.code import Pass
from weft.kernels.linear.autograd import differentiable, launched


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    initial: Tensor | None = None,
    final: bool = False,
    chunk: int = 64,
) -> Tensor | tuple[Tensor, Tensor]:
    """The state from chunk to chunk, then all chunks at once, as weft.ref.linear.gated.chunked.

    For fp16, bf16 and fp32, K and V of up to 256 and chunks of up to 128 tokens; sums and states
    are in fp32. A log_decay of -inf, or of less than -111, resets the state; its own gradient
    is 0. On a GPU no decay is looked at beforehand, since that would have to wait for it: what is
    above 0 lets the state grow.
    """
    o, last = differentiable(q, k, v, log_decay, initial, chunk)
    return (o, last) if final else o


def passes(target: str, channels: bool = False, **kind) -> tuple[Pass, ...]:
    """The kernels of the forward and the backward pass, as they are launched on a chip."""
    return launched(chunked, target, decays=int(channels), **kind)
