"""FlashAttention-3 in Gluon: four versions forward, two ways backward, and FP8."""

from weft.kernels.hopper import fp8
from weft.kernels.hopper.faces import (
    FUSED,
    TILINGS,
    VERSIONS,
    attention,
    fused,
    passes,
    pingpong,
    simple,
    specialized,
)

__all__ = [
    "FUSED",
    "TILINGS",
    "VERSIONS",
    "attention",
    "fp8",
    "fused",
    "passes",
    "pingpong",
    "simple",
    "specialized",
]
