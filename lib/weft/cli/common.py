"""What several commands share: choosing by name, reading and writing files, errors in one line."""

import json
import os
from errno import EACCES, EISDIR, ENOENT
from pathlib import Path


def one_line(error: Exception) -> str:
    """An error as a line: what a person can act on, not where in the code it was noticed."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("weft"):
        return f"this needs {error.name}, which is not installed (weft doctor says more)"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def known(what: str, name: str, choices):
    """`choices[name]`; ValueError lists the names where there is none."""
    if name not in choices:
        raise ValueError(f"unknown {what} {name!r}: choose from {', '.join(choices)}")
    return choices[name]


def read_json(path: Path, meaning):
    """`meaning` of a JSON file's content; a ValueError names the file."""
    try:
        return meaning(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:  # JSON's own, too
        raise ValueError(f"{path}: {error}") from error


def check_writable(*paths: Path | None) -> None:
    """Raise OSError, before the work, where its result could not be written to these files."""
    for path in filter(None, paths):
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
        if not path.parent.is_dir():
            raise FileNotFoundError(ENOENT, f"there is no folder {path.parent}", str(path))
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(EACCES, os.strerror(EACCES), str(path))


def write(path: Path, text: str) -> None:
    """Write a file and say where."""
    path.write_text(text, encoding="utf-8")
    print(f"written: {path}")
