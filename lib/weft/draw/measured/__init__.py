"""Pictures of records: measurements as curves, versions as a ladder."""

from weft.draw.measured import curves, ladder
from weft.draw.measured.curves import value_words

__all__ = ["curves", "ladder", "value_words"]
