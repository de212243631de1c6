"""FlashAttention-3 in Gluon: four versions forward, two ways backward, and FP8."""

from weft.kernels.hopper import fp8
from weft.kernels.hopper.backward import FUSED
from weft.kernels.hopper.face import attention, fused, passes, pingpong, simple, specialized
from weft.kernels.hopper.forward import VERSIONS
from weft.kernels.hopper.launch import aligned, blocks, check_device, described
from weft.kernels.hopper.launch import launch as launch_blocks
from weft.kernels.hopper.ring import Ring, buffer, fill, phase_of, ready, stage_of
from weft.kernels.hopper.ring import ring as new_ring

__all__ = [
    "FUSED",
    "VERSIONS",
    "Ring",
    "aligned",
    "attention",
    "blocks",
    "buffer",
    "check_device",
    "described",
    "fill",
    "fp8",
    "fused",
    "launch_blocks",
    "new_ring",
    "passes",
    "phase_of",
    "pingpong",
    "ready",
    "simple",
    "specialized",
    "stage_of",
]
