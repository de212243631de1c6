"""Attention to some of the keys: by definition, in sliding chunks, and layouts of blocks."""

from weft.ref.sparse.chosen import dsa, moba, nsa
from weft.ref.sparse.chunks import sliding_chunks
from weft.ref.sparse.exact import block_sparse, longformer
from weft.ref.sparse.fixed import bigbird, sinks

__all__ = [
    "bigbird",
    "block_sparse",
    "dsa",
    "longformer",
    "moba",
    "nsa",
    "sinks",
    "sliding_chunks",
]
