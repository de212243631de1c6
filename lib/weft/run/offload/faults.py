"""What can go wrong with a store: an OSError that names the file and says what is safe.

One `except OSError` catches a full disk and a flipped bit (weft.run.files.Damaged) alike.
"""

import errno
import os
from pathlib import Path

from weft.run.files import Damaged

SAFE = "what was flushed before is whole"


class OverBudget(RuntimeError):
    """The tensors that somebody still holds fill the budget."""


def fault(error: OSError, path: Path, doing: str, safe: str = SAFE) -> OSError:
    """The same error as a sentence: what the system says, what failed, and what is safe."""
    if isinstance(error, Damaged):
        return error
    number = error.errno or errno.EIO
    return OSError(number, f"{os.strerror(number)}: {doing} failed, and {safe}", str(path))
