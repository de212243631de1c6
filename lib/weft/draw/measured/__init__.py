"""Pictures of records: measurements as curves, versions as a ladder."""

from weft.draw.measured import curves, ladder

__all__ = ["curves", "ladder"]
