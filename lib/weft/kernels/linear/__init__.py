"""Linear attention in Triton: the chunked form, in passes.

`states` walks along the chunks and stores the state before each; `output` then computes all chunks
at once. The gradients take the same two passes, `decay` for those of the decays, and `channels`
has what is different where each channel of a key fades by itself.
"""

from weft.kernels.linear import delta, gated
from weft.kernels.linear.autograd import differentiable
from weft.kernels.linear.plain import chunked, passes

__all__ = ["chunked", "delta", "differentiable", "gated", "passes"]
