"""Checkpoints of ZeRO: every rank writes what it keeps, and any number of ranks can load it.

`save` and `load` are for one Zero. The others are what they are made of, for a training with
several: `collected` says what a Zero has, by name, `write` puts what the ranks of any group have
into a folder, `read` and `read_parts` find it, and `take` gives a Zero what is its own.
"""

from weft.run.zero.checkpoint.files import read_parts
from weft.run.zero.checkpoint.folder import (
    agreed_on,
    claim,
    exists,
    fits,
    gathered,
    load,
    misfits_of_settings,
    read,
    save,
    settings,
    take,
    write,
)
from weft.run.zero.checkpoint.state import Flat, collected

__all__ = [
    "Flat",
    "agreed_on",
    "claim",
    "collected",
    "exists",
    "fits",
    "gathered",
    "load",
    "misfits_of_settings",
    "read",
    "read_parts",
    "save",
    "settings",
    "take",
    "write",
]
