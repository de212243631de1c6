"""The experts' matmuls in Gluon for Hopper: TMA copies, gathered rows, and WGMMA products."""

from weft.kernels.experts.hopper.face import grouped_matmul, mlp, passes

__all__ = ["grouped_matmul", "mlp", "passes"]
