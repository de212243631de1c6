"""Longformer: layers that attend to a window and to a few global tokens, and published weights."""

from weft.nn.sparse.load import load
from weft.nn.sparse.model import Longformer, LongformerConfig, WindowAttention

__all__ = ["Longformer", "LongformerConfig", "WindowAttention", "load"]
