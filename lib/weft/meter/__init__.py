"""MEASURE. Bytes sent, bytes alive, tile memory used.

`traffic()` counts what this rank sends, `live()` what is kept alive, `Sram(capacity)` is a tile
memory that counts what is moved. May import: torch, and nothing else of weft.
"""

from .live import live
from .sram import Sram, SramOverflow
from .traffic import traffic

__all__ = ["Sram", "SramOverflow", "live", "traffic"]
