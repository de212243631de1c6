"""Linear attention in Triton: the chunked form, in passes."""

from weft.kernels.linear import delta, gated
from weft.kernels.linear.plain import chunked

__all__ = ["chunked", "delta", "gated"]
