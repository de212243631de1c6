"""The experts' matmuls in Triton: one launch for all, whatever each one's rows are."""

from weft.kernels.experts.face import grouped_matmul, mlp, passes
from weft.kernels.experts.versions import VERSIONS, looped, padded, permuted

__all__ = ["VERSIONS", "grouped_matmul", "looped", "mlp", "padded", "passes", "permuted"]
