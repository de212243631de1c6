"""The answer's side: one process per test, forked from a small one that has not seen any answer.

`main` is what the grader starts. It imports the plans, then forks for each test a child that locks
itself in, imports `answers.py` and calls its functions as the grader asks. Values travel as plain
data. A test's child is killed with all it started when the test ends, so nothing that an answer
leaves behind, in memory or as a process, reaches the next test.

Beside `answers.py` a topic may have a `probe.py`, which is the grader's: its `warm()` runs once in
the small process, to import what each test would import again, its `prepare()` in each child
before the answers are imported, and its functions get the answers' module first. That is where
bytes and live activations are measured. An answer shares its process with the probe and could
forge what the probe measures; it cannot reach the tests, the scores or the report.
"""

import contextlib
import importlib
import importlib.util
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import weft.plan.simulate  # imported here so that the children have it already
from weft.grade import confine, data

MEMORY = 8 << 30  # bytes that an answer's process may have for itself
MOST = 16 << 20  # bytes of one request or reply
READY = b"ready..."  # eight bytes, like all that is said on the control socket


def main() -> None:
    """Fork one child per request; sys.argv is the control socket, answers, probe and scratch."""
    control = socket.socket(fileno=int(sys.argv[1]))
    answers, probe, scratch = (Path(argument) for argument in sys.argv[2:])
    confine.die_with_parent()
    confine.adopt_orphans()
    confine.hide_memory()
    warm(probe)
    control.sendall(READY)
    while True:
        asked, handles, _, _ = socket.recv_fds(control, 1, 2)
        if not asked:
            return
        child = os.fork()
        if child == 0:
            control.close()
            serve(*handles, answers, probe, scratch)
        for handle in handles:
            os.close(handle)
        control.sendall(child.to_bytes(8, "big"))
        while (ended := os.waitpid(-1, 0))[0] != child:
            pass  # an orphan that was adopted
        control.sendall(os.waitstatus_to_exitcode(ended[1]).to_bytes(8, "big", signed=True))


def serve(connection: int, printed: int, answers: Path, probe: Path, scratch: Path) -> None:
    """Lock this process in, then answer requests until it is killed."""
    os.setsid()
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.close(printed)
    os.chdir(scratch)
    confine.die_with_parent()
    confine.hide_memory(False)
    confine.limit(MEMORY)
    confine.lock_in(scratch)
    sys.path.insert(0, str(answers.parent))
    modules: dict[str, ModuleType] = {}
    with socket.socket(fileno=connection) as channel:
        while request := receive(channel):
            ticket, home, name, args, kwargs = data.loads(request)
            try:
                if not modules:
                    modules = load_both(answers, probe)
                reply = pack(ticket, call(modules, home, name, args, kwargs))
            except BaseException as error:
                sort = "raised" if modules else "import"
                reply = data.dumps([ticket, *explain(error, answers, sort)])
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            send(channel, reply)
    os._exit(0)


def warm(probe: Path) -> None:
    """Have the probe import, once for all tests, what is slow to import."""
    if probe.is_file():
        module = load(probe, "probe", known=False)
        if hasattr(module, "warm"):
            module.warm()


class Missing(Exception):
    """The answers have no function of that name."""


def load_both(answers: Path, probe: Path) -> dict[str, ModuleType]:
    """The answers' module and the probe's; the probe prepares before the answers are run."""
    modules = {}
    if probe.is_file():
        modules["probe"] = load(probe, "probe", known=False)
        if hasattr(modules["probe"], "prepare"):
            modules["probe"].prepare()
    modules["answers"] = load(answers, "answers")
    return modules


def load(path: Path, name: str, known: bool = True) -> ModuleType:
    """The module in the file `path`; `import name` finds it too where it is to be `known`."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    if known:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def call(modules: dict[str, ModuleType], home: str, name: str, args: tuple, kwargs: dict) -> Any:
    function = getattr(modules[home], name, None)
    if not callable(function):
        raise Missing(f"there is no function {name} in {home}.py")
    before = (modules["answers"],) if home == "probe" else ()
    return function(*before, *args, **kwargs)


def pack(ticket: str, value: Any) -> bytes:
    """The reply that carries a value, or says what in it cannot be carried."""
    try:
        reply = data.dumps([ticket, "value", value])
    except TypeError as error:
        return data.dumps([ticket, "unfit", str(error)])
    if len(reply) > MOST:
        return data.dumps([ticket, "unfit", f"more than {MOST >> 20} MiB"])
    return reply


def explain(error: BaseException, answers: Path, sort: str) -> tuple[str, list]:
    """What went wrong as data: its sort, the exception's name, its text, the line in answers.py."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(answers)]
    if isinstance(error, Missing):
        sort = "missing"
    if isinstance(error, NotImplementedError) and not str(error):
        sort = "unwritten"
    line = lines[-1] if lines else getattr(error, "lineno", None)
    return sort, [type(error).__name__, str(error)[:2000], line]


# --- frames ---------------------------------------------------------------------------------------


def send(channel: socket.socket, payload: bytes) -> None:
    channel.sendall(len(payload).to_bytes(8, "big") + payload)


def receive(channel: socket.socket) -> bytes:
    """One payload, or nothing at the end of the stream."""
    head = channel.recv(8, socket.MSG_WAITALL)
    return channel.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL) if head else b""


# --- for probes -----------------------------------------------------------------------------------


def close(*names: str) -> None:
    """Close library functions ("module:function") or modules ("module") to the answers.

    An exercise that asks for 1F1B must not be passed by calling ours. The function keeps its
    identity and loses its body, so every name and table that refers to it is closed as well. A
    module is closed with those below it, and what packages above it hand on from it.
    """
    for name in names:
        module, _, function = name.partition(":")
        if function:
            vars(importlib.import_module(module))[function].__code__ = _closed.__code__
            continue
        for closed in (module, *_below(module)):
            _close_module(closed)


def _below(package: str) -> list[str]:
    """The modules inside a package of ours, imported or not; of others those that are imported."""
    top, *inside = package.split(".")
    if top != "weft":
        return [loaded for loaded in sys.modules if loaded.startswith(f"{package}.")]
    folder = Path(weft.__file__).parent
    files = folder.joinpath(*inside).rglob("*.py")
    names = (".".join((top, *p.relative_to(folder).with_suffix("").parts)) for p in files)
    return sorted({name.removesuffix(".__init__") for name in names} - {package})


def _close_module(name: str) -> None:
    real = sys.modules.get(name)
    sys.modules[name] = closed = ModuleType(name)
    closed.__getattr__ = _closed_attribute
    parts = name.split(".")
    for depth in range(1, len(parts)):
        above = sys.modules.get(".".join(parts[:depth]))
        if above is None or real is None:
            continue
        for attribute, value in list(vars(above).items()):
            if value is real or getattr(value, "__module__", None) == name:
                setattr(above, attribute, closed if value is real else _closed)


def _closed(*args: Any, **kwargs: Any) -> None:
    raise PermissionError("closed while you are graded: the exercise is to write this yourself")


def _closed_attribute(name: str) -> None:
    if name.startswith("__"):
        raise AttributeError(name)
    raise PermissionError("closed while you are graded: the exercise is to write this yourself")


def rank(world: Any, file: str, answers: str, name: str, *args: Any) -> Any:
    """For `launch`: the function `name` of a grader's file, on one rank, beside the answers.

    `file` lies beside the probe, whose `prepare()` runs on each rank too.
    """
    modules = load_both(Path(answers), Path(file).with_name("probe.py"))
    function: Callable[..., Any] = getattr(load(Path(file), "ranks", known=False), name)
    return function(world, modules["answers"], *args)
