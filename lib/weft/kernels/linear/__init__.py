"""Linear attention in Triton: the chunked form, in passes."""

from weft.kernels.linear import gated
from weft.kernels.linear.plain import chunked

__all__ = ["chunked", "gated"]
