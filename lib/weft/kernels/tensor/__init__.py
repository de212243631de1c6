"""What tensor parallelism leaves on each rank, fused: norms with their residual, SwiGLU, the loss.

Each moves the fewest bytes that it can, forward and backward; `weft.plan.tensor` counts them.
`VERSIONS` has by layer what was before: torch's operations one by one ("plain"), kernels for each
step ("apart"), and "fused".
"""

from weft.kernels.code import Pass
from weft.kernels.tensor.cross_entropy import cross_entropy, scores_gradient, vocabulary_part
from weft.kernels.tensor.cross_entropy import passes as loss_passes
from weft.kernels.tensor.norm import layer_norm, rms_norm
from weft.kernels.tensor.norm import passes as norm_passes
from weft.kernels.tensor.swiglu import passes as swiglu_passes
from weft.kernels.tensor.swiglu import swiglu
from weft.kernels.tensor.versions import VERSIONS

__all__ = [
    "VERSIONS",
    "cross_entropy",
    "layer_norm",
    "passes",
    "rms_norm",
    "scores_gradient",
    "swiglu",
    "vocabulary_part",
]


def passes(target: str, only: tuple[str, ...] = ()) -> tuple[Pass, ...]:
    """The kernels of all of them, as they are launched on a chip; or `only` some, by name."""
    found = [one for listed in (norm_passes, swiglu_passes, loss_passes) for one in listed(target)]
    return tuple(one for one in found if not only or one.name in only)
