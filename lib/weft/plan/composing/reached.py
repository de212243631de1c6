"""What chips and links reach of what their makers promise: shares, each with its source.

None of them comes from a row of `published`, but SUSTAINED, which is fitted to the times of one
layer in Korthikanti et al. 2022, table 4, and to nothing else.
"""

from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from weft.plan.hardware import Chip, Link

# The best matmul of thousands of shapes over the data sheet's rate: mamf-finder's table in
# stas00/ml-engineering, compute/accelerator: 271.2 of 312, 794.5 of 989 and 1402.6 of 1979
# TFLOP/s. A chip that nobody has listed gets the least of them.
BEST = MappingProxyType({"a100-40": 0.869, "a100-80": 0.869, "h100": 0.803, "h200": 0.803})
BEST_FP8 = 0.709
UNLISTED = 0.8
SUSTAINED = 0.85  # of the best shape's rate, by a step that runs for long, at its own shapes
BANDWIDTH = 0.848  # of memory: STREAM's triad on an H200, 4.07 of 4.8 TB/s, TileOPs' calibration
FLASH = (0.65, 0.54)  # of the 16-bit rate, forward and backward: cuDNN and FA3, H200; FA2, A100
INSIDE = 0.8  # of NVLink: "protocol overhead (~20%)", S. Jeaugey, NVIDIA/nccl-tests issue 212
BETWEEN = 0.94  # of a port: 46 to 48 of 50 GB/s, NVIDIA/nccl-tests issue 290
# What a collective takes of the chip while something else computes: Calculon's systems files.
TAKEN_INSIDE, TAKEN_BETWEEN = 0.15, 0.02
TILE = 128, 256  # of a matmul's output that one multiprocessor computes: cuBLAS' largest


@lru_cache(maxsize=64)
def matmul_rate(chip: Chip, dtype: str) -> float:
    """FLOP/s of a large matmul in the midst of a step."""
    best = BEST_FP8 if dtype == "fp8" else BEST.get(chip.name, UNLISTED)
    return chip.rate(dtype) * best * SUSTAINED


@lru_cache(maxsize=64)
def flash_rates(chip: Chip) -> tuple[float, float]:
    """FLOP/s of attention whose scores stay on the chip, forward and backward, in 16 bits."""
    rate = chip.rate(sixteen(chip))
    return FLASH[0] * rate, FLASH[1] * rate


def sixteen(chip: Chip) -> str:
    """The 16-bit format that a chip has."""
    return "bf16" if "bf16" in chip.rates else "fp16"


@lru_cache(maxsize=64)
def reached(link: Link, share: float) -> Link:
    """The link with that share of its bandwidth."""
    return replace(link, bandwidth=share * link.bandwidth)
