"""Attention along lists of blocks in Triton, forward and backward; a window is one such list."""

from weft.kernels.sparse import versions
from weft.kernels.sparse.face import block_sparse, longformer, passes

__all__ = ["block_sparse", "longformer", "passes", "versions"]
