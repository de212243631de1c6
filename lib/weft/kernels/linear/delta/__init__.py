"""The delta rule in Triton: the chunked form, in passes."""

from weft.kernels.linear.delta.face import chunked, passes

__all__ = ["chunked", "passes"]
