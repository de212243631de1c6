"""States in the files of a folder: a store within a budget, and Adam that streams through it."""

from weft.run.files import Damaged, durable
from weft.run.offload.adam import StreamingAdam, update
from weft.run.offload.direct_io import direct, forget
from weft.run.offload.layers import Streamed
from weft.run.offload.memory import Memory
from weft.run.offload.store import Store
from weft.run.offload.tiles import TiledLinear

__all__ = [
    "Damaged",
    "Memory",
    "Store",
    "Streamed",
    "StreamingAdam",
    "TiledLinear",
    "direct",
    "durable",
    "forget",
    "update",
]
