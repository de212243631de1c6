"""Real machine code without the machine: any kernel of the book, compiled for a GPU by name.

Triton carries a whole compiler, NVIDIA's assembler included, and needs neither a GPU nor a driver
to run it. So a laptop can read what an H100 would be given, and a test can hold it: which tensor
core instructions are there, how many registers, and that nothing spills.
"""

import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib import import_module
from pathlib import Path

from weft.kernels.code import store
from weft.kernels.code.compiled import Compiled, Pass
from weft.kernels.code.digest import digest
from weft.process.forkserver import Forkserver
from weft.process.job import Job, Surroundings

TARGETS = {"sm_80": 80, "sm_90": 90, "sm_100": 100}  # A100, H100 and H200, B200
SECONDS = 600  # for all passes of one face
COMPILES = {"TRITON_INTERPRET": "0"}


def compile_for(kernel: Callable, target: str, **kind: object) -> list[Compiled]:
    """Compile every pass of a face, such as weft.kernels.attention.attention, for a GPU.

    The passes are those that the face's module lists in `passes(target)`, at the configuration
    that is tuned for the target; a face may carry a `passes` of its own. What it takes besides,
    the width of a head for one, is its `kind`: plain values by keyword. They are built in a
    process of their own, because in this one Triton's interpreter may have taken the compiler's
    place. What has been built once is kept, for other processes too (`store`).

    Raises ValueError for an unknown target or something that lists no passes, RuntimeError with
    the compiler's last words where it refuses.
    """
    if target not in TARGETS:
        raise ValueError(f"target is {target!r}; it must be one of {', '.join(TARGETS)}")
    name = getattr(kernel, "__qualname__", "")
    module = sys.modules.get(getattr(kernel, "__module__", None) or "")
    if name == "" or getattr(module, name, None) is not kernel or module.__name__ == "__main__":
        raise ValueError(
            f"kernel is {kernel!r}; it must be a function at the top of a module that can be"
            " imported, such as weft.kernels.attention.attention"
        )
    _passes(kernel)(target, **kind)  # its complaints come from here, not out of another process
    return list(_compile(module.__name__, name, target, **kind))


def _passes(kernel: Callable) -> Callable[[str], tuple[Pass, ...]]:
    """What lists the passes of a face: the face itself, or else its module."""
    module = sys.modules[kernel.__module__]
    passes = getattr(kernel, "passes", None) or getattr(module, "passes", None)
    if passes is None:
        raise ValueError(
            f"kernel is {kernel.__qualname__} of {module.__name__}, which has no passes(target);"
            " only a face of weft.kernels can be compiled"
        )
    return passes


@cache
def _compile(module: str, name: str, target: str, **kind: object) -> tuple[Compiled, ...]:
    """What is kept of the passes, and the others compiled, all of them in one process."""
    listed = _passes(getattr(sys.modules[module], name))(target, **kind)
    keys = [store.key(digest(one), target) for one in listed]
    found = store.kept(keys, lambda places: _elsewhere(module, name, target, kind, places))
    fields = zip(found, listed, strict=True)
    return tuple(Compiled(**known | {"name": one.name}) for known, one in fields)


def _elsewhere(
    module: str, name: str, target: str, kind: Mapping[str, object], places: Sequence[int]
) -> list[store.Fields]:
    """Some passes of a face, by their places in its list, compiled in a process of its own."""
    around = Surroundings.here()
    around = replace(around, environment=around.environment | COMPILES)
    payload = json.dumps([module, name, target, kind, list(places)]).encode()
    job = Job(f"{__name__}:_build", payload, 1, SECONDS, around)
    with _compilers().start(job) as running:
        (done,) = running.wait()
    if done.kind == "returned":
        return json.loads(done.value)
    words = done.detail.splitlines() or [done.cause or f"not done within {SECONDS} s"]
    error = RuntimeError(f"{module}.{name} does not compile for {target}: {words[-1]}")
    error.add_note("\n".join(words[-40:]))
    raise error


_server: Forkserver | None = None


def _compilers() -> Forkserver:
    """What forks the processes that compile, started if it is not there."""
    global _server
    if _server is None or _server.gone:
        environment = dict(os.environ) | COMPILES
        _server = Forkserver.fresh(f"{__name__}:_ready", environment=environment, path=sys.path)
        atexit.register(_server.close)
    return _server


# --- in the processes that compile ----------------------------------------------------------------


def _ready() -> None:
    """Do once what each compilation would do again for two seconds: import, and hash Triton."""
    import torch
    from triton.runtime.cache import triton_key

    torch.empty_like(torch.empty(1, device="meta"))  # on which faces are recorded; loads sympy
    triton_key()


def _build(job: Job, rank: int, folder: str) -> bytes:
    """Compile some passes of a face, and say as JSON what came out."""
    module, name, target, kind, places = json.loads(job.payload)
    listed = _passes(getattr(import_module(module), name))(target, **kind)
    return json.dumps([asdict(_build_pass(listed[i], target)) for i in places]).encode()


def _build_pass(one: Pass, target: str) -> Compiled:
    import triton
    from triton.backends.compiler import GPUTarget

    source = _source(one)
    made = triton.compile(
        source, target=GPUTarget("cuda", TARGETS[target], 32), options=dict(one.options)
    )
    sass, registers, spills = _machine_code(made.asm["cubin"])
    shared, warps = made.metadata.shared, one.options.get("num_warps", 4)
    return Compiled(one.name, made.asm["ptx"], sass, registers, spills, shared, warps)


def _source(one: Pass):
    """The kernel with its types, as triton.compile wants it: every argument in its own order."""
    from triton.compiler import ASTSource

    names = list(one.function.arg_names)
    unknown = sorted((set(one.signature) | set(one.constexprs)) - set(names))
    if unknown or set(one.signature) & set(one.constexprs):
        raise ValueError(f"pass {one.name!r} gives arguments {unknown} that its kernel lacks")
    missing = sorted(set(names) - set(one.signature) - set(one.constexprs))
    if missing:
        raise ValueError(f"pass {one.name!r} says nothing of its kernel's arguments {missing}")
    constants = {(names.index(name),): value for name, value in one.constexprs.items()}
    hints: dict = {}
    signature = {
        name: _spread(one.signature.get(name, "constexpr"), (i,), constants, hints)
        for i, name in enumerate(names)
    }
    kind = ASTSource
    if one.function.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        kind = GluonASTSource
    return kind(one.function, signature, constants, hints)


def _spread(kind, path: tuple[int, ...], constants: dict, hints: dict):
    """A type as Triton spells it; constants and hints are noted by their path into the arguments.

    (2,) is the third argument, (2, 0) the first field of a NamedTuple in its place.
    """
    if isinstance(kind, tuple):
        fields = (_spread(one, (*path, i), constants, hints) for i, one in enumerate(kind))
        return type(kind)(*fields)
    if not isinstance(kind, str):
        constants[path] = kind
    if not isinstance(kind, str) or kind == "constexpr":
        return "constexpr"
    kind, _, multiple = kind.partition(":")
    if multiple:
        hints[path] = [["tt.divisibility", int(multiple)]]
    return kind


def _machine_code(cubin: bytes) -> tuple[str, int, int]:
    """The disassembly, the registers and the bytes of local memory per thread."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        sass = _tool(knobs.nvidia.nvdisasm.path, "--print-code", path)
        usage = _tool(knobs.nvidia.cuobjdump.path, "--dump-resource-usage", path)
    used = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}
    return sass, used["REG"], used["STACK"] + used["LOCAL"]


def _tool(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout
