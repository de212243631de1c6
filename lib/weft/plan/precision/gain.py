"""What FP8 gains in a linear layer: faster matmuls, against passes that scale and cast."""

from weft.plan.arguments import amount, instance, sizes
from weft.plan.hardware import Chip


def linear_gain(
    m: int, k: int, n: int, chip: Chip, share: float = 0.7, launch: float = 2e-6
) -> float:
    """How many times as fast a linear layer is in FP8 as in bf16, forward and backward.

    m tokens, k inputs and n outputs: three matmuls of 2 m k n FLOPs, at `share` of the peak in both
    types. Inputs, weights and output gradients are each read twice in bf16, for the maximum and for
    the cast, and written twice in FP8, since a matmul of the backward sums over another dim: 6
    bytes for each number at the chip's bandwidth, by two kernels that take at least `launch`.

    >>> from weft.plan.hardware import CHIPS
    >>> [round(linear_gain(m, 2 * m, m, CHIPS["h100"]), 2) for m in (1024, 4096, 16384)]
    [0.87, 1.6, 1.88]
    """
    sizes(m=m, k=k, n=n)
    instance(Chip, chip=chip)
    share, launch = amount("share", share, above=True), amount("launch", launch)
    work = 3 * 2 * m * k * n / share
    casts = sum(max(6 * x / chip.bandwidth, 2 * launch) for x in (m * k, k * n, m * n))
    return work / chip.rate("bf16") / (work / chip.rate("fp8") + casts)


def linear_part(tokens: float, params: int, chip: Chip, share: float = 0.7) -> float:
    """The part of a step that linear layers take, from the tokens that a GPU trains on per second.

    `params` are those of the layers, each in three matmuls of 2 FLOPs for a token, in bf16 at
    `share` of the peak. More than 1 says that they ran faster than assumed.

    >>> from weft.plan.hardware import CHIPS
    >>> round(linear_part(5760, 7 * 10**9, CHIPS["h100"]), 2)
    0.35
    """
    sizes(params=params)
    instance(Chip, chip=chip)
    tokens, share = amount("tokens", tokens), amount("share", share, above=True)
    return 6 * params * tokens / (share * chip.rate("bf16"))
