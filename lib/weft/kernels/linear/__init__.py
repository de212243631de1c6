"""Linear attention in Triton: the chunked form, in passes."""

from weft.kernels.linear import gated

__all__ = ["gated"]
