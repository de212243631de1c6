"""The chapter's design problem: one token through a decoder, kernel by kernel, as a queue."""

from typing import NamedTuple

from weft.plan.arguments import amount, few, instance, whole
from weft.plan.gpu.walls import LAUNCH, finish
from weft.plan.hardware import Chip
from weft.plan.shape import ModelShape

# Kernels of a layer beside matmuls and attention, as PyTorch runs one without compiling it: two
# norms, rotated queries and keys, two entries of the cache, two additions, the gate.
SMALL = 2 * 8 + 2 * 5 + 2 + 2 + 2


class TokenTime(NamedTuple):
    """Seconds for one token: the device's work, the host's launches, and until the last is done."""

    work: float
    launches: float
    end: float


def token_time(
    shape: ModelShape, chip: Chip, cached: int, launch: float = LAUNCH, small: int = SMALL
) -> TokenTime:
    """One sequence, one new token, `cached` tokens before it, 16 bits.

    Each matmul reads its weight (queries, keys and values have one each), attention reads the
    cache, and `small` kernels of each layer a vector or two, which takes no time to speak of. Half
    of the small ones run before each half of a layer.
    """
    instance(ModelShape, shape=shape)
    cached, small = whole("cached", cached), whole("small", small, least=0)
    launch = amount("launch", launch)
    few(shape.layers * small, "kernels", layers=shape.layers, small=small)
    instance(Chip, chip=chip)
    matmuls = [2 * rows * columns / chip.bandwidth for rows, columns in shape.matrices.values()]
    qkv, out, up, down = matmuls
    heads, groups = shape.heads, shape.groups
    projections = [qkv * each / (heads + 2 * groups) for each in (heads, groups, groups)]
    ups = [up / 2] * 2 if shape.gated else [up]
    attention = 2 * 2 * cached * groups * shape.key_width / chip.bandwidth
    before = [0.0] * (small // 2)
    after = [0.0] * (small - small // 2)
    layer = [*before, *projections, attention, out, *after, *ups, down]
    kernels = layer * shape.layers + [2 * shape.width * shape.vocab / chip.bandwidth]
    return TokenTime(sum(kernels), launch * len(kernels), finish(kernels, launch))
