"""FlashAttention-3 in Gluon: four versions forward, two ways backward, and FP8."""

from weft.kernels.hopper import fp8
from weft.kernels.hopper.backward import FUSED
from weft.kernels.hopper.face import attention, fused, passes, pingpong, simple, specialized
from weft.kernels.hopper.forward import VERSIONS

__all__ = [
    "FUSED",
    "VERSIONS",
    "attention",
    "fp8",
    "fused",
    "passes",
    "pingpong",
    "simple",
    "specialized",
]
