"""What can go wrong with a store, each as one sentence that names the file and what is safe.

All are OSErrors, so that one `except` catches a full disk and a flipped bit alike.
"""

import errno
import os
from pathlib import Path

SAFE = "what was flushed before is whole"
SAID = {  # what a person calls it
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "the file would be larger than the limit",
    errno.EACCES: "permission was denied",
    errno.EPERM: "permission was denied",
    errno.ENOENT: "it is not there any more, nor perhaps its folder",
    errno.ELOOP: "a link is in its place, and links are not followed",
}


class Damaged(OSError):
    """A file does not hold what was written to it."""


class OverBudget(RuntimeError):
    """The tensors that somebody still holds fill the budget."""


def damaged(path: Path, what: str) -> Damaged:
    """An error for a file with the wrong bytes; `what` is wrong with it, and what is safe."""
    return Damaged(errno.EIO, what, str(path))


def fault(error: OSError, path: Path, doing: str, safe: str = SAFE) -> OSError:
    """The same error, saying in a sentence what could not be done and what is safe."""
    if isinstance(error, Damaged):
        return error
    number = error.errno or errno.EIO
    why = SAID.get(number, os.strerror(number))
    return OSError(number, f"{why}: {doing} failed, and {safe}", str(path))
