"""Machine code that was made once is kept: a file for each pass, named by what its compiler read.

The files lie beside Triton's own cache (TRITON_CACHE_DIR, or ~/.triton/cache), in a folder `weft`
that may be deleted at any time. A key stands for kernel, types, constants, options, target,
Triton and this code, so nothing in there is ever out of date. Where several processes want the
same pass at once, the first compiles it and the others wait for the file.
"""

import fcntl
import gzip
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

Fields = dict[str, object]  # of a Compiled
HERE = Path(__file__).parent


def key(digest: str, target: str) -> str:
    """The name under which a pass with that digest is kept, compiled for that target."""
    from triton import knobs

    read = (digest, target, knobs.nvidia.ptxas.path, (HERE / "compile.py").read_text())
    return hashlib.sha256(repr(read).encode()).hexdigest()


def kept(keys: Sequence[str], build: Callable[[list[int]], list[Fields]]) -> list[Fields]:
    """What is kept under each key; `build` makes what is missing, by its place in the list.

    With TRITON_ALWAYS_COMPILE set nothing is taken from before.
    """
    from triton import knobs

    folder = Path(knobs.cache.dir) / "weft"
    folder.mkdir(parents=True, exist_ok=True)
    found = {} if knobs.compilation.always_compile else _read(folder, keys)
    missing = [one for one in dict.fromkeys(keys) if one not in found]
    with _locked(folder, missing):
        if not knobs.compilation.always_compile:
            found |= _read(folder, missing)  # another process may have been faster
        missing = [one for one in missing if one not in found]
        made = build([keys.index(one) for one in missing]) if missing else []
        for one, fields in zip(missing, made, strict=True):
            _write(folder / one, fields)
            found[one] = fields
    return [found[one] for one in keys]


def _read(folder: Path, keys: Sequence[str]) -> dict[str, Fields]:
    files = {one: folder / one for one in keys if (folder / one).exists()}
    return {one: json.loads(gzip.decompress(file.read_bytes())) for one, file in files.items()}


def _write(file: Path, fields: Fields) -> None:
    """All of it or nothing, for whoever reads meanwhile."""
    part = file.with_suffix(f".{os.getpid()}")
    part.write_bytes(gzip.compress(json.dumps(fields).encode(), compresslevel=1))
    part.replace(file)


@contextmanager
def _locked(folder: Path, keys: Sequence[str]) -> Iterator[None]:
    """Be the only process at work on these keys; all lock in one order, so none waits in a circle.

    The system takes the locks back when a process ends, however it ends.
    """
    with ExitStack() as held:
        for one in sorted(keys):
            file = held.enter_context((folder / one).with_suffix(".lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
