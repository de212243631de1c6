"""What the compiler is given for a pass, as a digest: kernel, types, constants, options, Triton.

So it can be said without compiling whether anything would come out otherwise than last time.
"""

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from weft.kernels.code.compiled import Pass


def source(one: Pass) -> int:
    """The digest of a pass as a number that a record can hold."""
    return int(digest(one)[:12], 16)


def digest(one: Pass) -> str:
    """All that the compiler is given, as 64 digits: kernel, types, constants, options, Triton.

    Two passes with the same digest become the same machine code, so only one need be compiled.
    The text is that of the kernel's function and of all that this names, and so on, in the
    modules of weft; what else stands there does not matter.
    """
    import triton

    given = {
        name: repr((_home(x) and _home(x)[1]) or x) for name, x in sorted(one.constexprs.items())
    }
    homes = filter(None, map(_home, (one.function, *one.constexprs.values())))
    texts = sorted(_reached(homes).values())
    words = (triton.__version__, sorted(one.signature.items()))
    words += (given, sorted(one.options.items()), texts)
    return hashlib.sha256(repr(words).encode()).hexdigest()


def _home(value: object) -> tuple[str, str] | None:
    """The module and the name of a kernel; None for anything else."""
    function = getattr(value, "fn", None)
    return function and (function.__module__, function.__name__)


def _reached(homes: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The text of what stands at some places, and of what that names in weft, and so on."""
    found: dict[tuple[str, str], str] = {}
    new = list(homes)
    while new:
        module, name = home = new.pop()
        defined, imported = _module(module)
        if home in found:
            continue
        if name not in defined | imported:
            if _package(module) and find_spec(f"{module}.{name}"):  # a module was imported
                found[home] = _text(f"{module}.{name}")
            continue
        if name in imported:
            new.append(imported[name])
            continue
        found[home], named = defined[name]
        new += [(module, other) for other in named]
    return found


@cache
def _module(name: str) -> tuple[dict[str, tuple[str, set[str]]], dict[str, tuple[str, str]]]:
    """What a module defines, each with its text and the names in it, and what it imports."""
    text = _text(name)
    lines, defined, imported = text.splitlines(), {}, {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft."):
            imported |= {x.asname or x.name: (node.module, x.name) for x in node.names}
        names = [getattr(node, "name", None)]
        for target in getattr(node, "targets", ()):
            names += [x.id for x in ast.walk(target) if isinstance(x, ast.Name)]
        first = min([node.lineno, *(x.lineno for x in getattr(node, "decorator_list", ()))])
        said = "\n".join(lines[first - 1 : node.end_lineno])
        named = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
        defined |= {one: (said, named) for one in names if one}
    return defined, imported


def _package(module: str) -> bool:
    return find_spec(module).submodule_search_locations is not None


def _text(module: str) -> str:
    return Path(find_spec(module).origin).read_text(encoding="utf-8")
