"""The experts' matmuls in Triton: one launch for all, whatever each one's rows are."""

from weft.kernels.experts.face import grouped_matmul, mlp, passes

__all__ = ["grouped_matmul", "mlp", "passes"]
