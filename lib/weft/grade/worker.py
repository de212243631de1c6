"""The processes of a grading: forked from one that has not seen any answer, one set a test.

    the first     has imported what every test would import again (`ready`)
      the grader          pytest and the report (plugin.py)
      a test's, for each  the measuring process (`measure`): a topic's probe.py and its meters
      clean               a copy of the first from before it had loaded anything of the topic
        a grading's         the same, kept from reading what answers must not see (`keep_out`)
          a test's, for each  the answer's process (`serve`, or guest.py behind a measuring one)

An answer's process locks itself in, imports `answers.py` and calls its functions as it is asked.
Values travel as plain data. It is ended with all it started when the test ends, so nothing that an
answer leaves behind, in memory or as a process, reaches the next test.

Beside `answers.py` a topic may have two files of the grader's. `room.py` says what is around the
answers: CLOSED names what of the library is closed to them, and LOADED what is imported before
them, once. `probe.py` is loaded in the measuring process: its `warm()` runs once, in the first, and
its functions get the answer first, whose functions they call. That is where bytes and live
activations are measured: nothing that an answer does in its own process can change them.
"""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from weft.grade import confine, data
from weft.grade.bridge import MOST, Gone, Raised, Tampered
from weft.grade.closed import FOLDER, Closed
from weft.grade.confine import MEMORY
from weft.process.end import hide_memory, keep_only
from weft.process.forkserver import Forkserver, Launched, keep_copy, serve_forks
from weft.process.job import Job
from weft.process.messages import receive, send
from weft.process.pages import collapse

PARTING = 1.0  # seconds to hear how a process ended that has closed its connection
LIBRARY = FOLDER.parent

clean: Forkserver | None = None  # of the first process, and what is forked from it
shut: Closed | None = None  # what is closed to answers, the same
beside = [Path("/")]  # what answers may read, as far as `keep_out` lets them


def forkserver(probe: Path, *modules: str, shrink: bool = True) -> Forkserver:
    """A process that gradings with this probe, and the tests beside it, are forked from.

    It has these modules loaded too. What its hidden tests tell of is the smallest input that fails,
    or without `shrink` the first.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(LIBRARY), *map(os.path.abspath, filter(None, paths))]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    arguments = (str(probe), "shrink" * shrink, *modules)
    return Forkserver.fresh(f"{__name__}:ready", *arguments, environment=environment)


def ready(probe: str, shrink: str, *modules: str) -> None:
    """Import what gradings need: what answers may see first, and then, in a copy, the rest."""
    global clean, shut
    hide_memory()
    os.environ["TRITON_INTERPRET"] = "1"  # its functions have to know when they are loaded
    around = room(Path(probe).with_name("room.py"))
    shut = Closed(around.get("CLOSED", ()))
    for name in around.get("LOADED", ()):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
        importlib.import_module("weft.grade.handles")
        importlib.import_module("weft.grade.torch_calls").names()
    importlib.import_module("weft.grade.guest")
    collapse()
    clean = Forkserver.here()
    if Path(probe).is_file():
        module = load(Path(probe), "probe", known=False)
        if hasattr(module, "warm"):
            module.warm()
    if "torch" in sys.modules:
        importlib.import_module("weft.grade.watch")
        ranks = Path(probe).with_name("ranks.py")
        if ranks.is_file():
            load(ranks, "ranks", known=False)
            importlib.import_module("torch.fx.experimental.symbolic_shapes")  # as backward does
    for name in modules:
        importlib.import_module(name)
    importlib.import_module("weft.grade.plugin").collect(Path(probe).parent, bool(shrink))
    collapse()


def room(path: Path) -> dict[str, tuple[str, ...]]:
    """What a topic's room.py says; it is read and not run, so that nothing else is loaded."""
    if not path.is_file():
        return {}
    return {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
    }


def clean_copy() -> Forkserver:
    """What forks processes for answers, as this process may use it."""
    return Forkserver(clean.channel.dup(), None, None)


@contextlib.contextmanager
def kept_out(answers: str, tests: str, scratch: str) -> Iterator[None]:
    """Have processes for answers forked from one that cannot read what these must not see.

    `scratch` is the folder in which each has one of its own. Once a grading, as there are a
    thousand rules where much of the library is closed.
    """
    global clean
    before = clean
    ours, theirs = socket.socketpair()
    payload = json.dumps([answers, tests, scratch]).encode()
    with ours, before.start(Job(f"{__name__}:keep_out", payload), theirs.fileno()):
        theirs.close()
        clean = Forkserver(ours, None, None)
        try:
            yield
        finally:
            clean = before


def keep_out(job: Job, rank: int, folder: str) -> bytes:
    """Be a forkserver that cannot read what is secret, and nor can what it forks."""
    global beside
    answers, tests, scratch = (Path(path) for path in json.loads(job.payload))
    beside = list(confine.all_but([scratch]))  # it cannot be looked up later
    tempfile.tempdir = folder  # which can be read and removed, as what is made elsewhere cannot
    course = LIBRARY.parent
    secret = [course / name for name in ("solutions", "_build", "lib/tests", "lib/build")]
    secret += history(course)
    if tests.parent.name == "solutions":
        secret.append(tests.parent)
    topics = (*course.glob("exercises/*"), *tests.parent.glob("../exercises/*"), tests)
    secret += [file for topic in {*topics, answers.parent} for file in of_grader(topic)]
    listed = LIBRARY, answers.parent  # imports look there
    confine.keep_out((*secret, *shut.files), readable=(answers,), listed=listed)
    serve_forks(socket.socket(fileno=job.files[0]))
    return b""


# --- an answer's process --------------------------------------------------------------------------


def serve(job: Job, rank: int, folder: str) -> NoReturn:
    """Lock this process in, then answer requests until it is killed."""
    connection, printed = job.files
    answers, _, scratch = (Path(path) for path in json.loads(job.payload))
    settle(connection, printed, answers, scratch)
    modules: list[ModuleType] = []

    def do(home: str, name: str, args: list, kwargs: dict) -> Any:
        if not modules:
            modules.append(load(answers, "answers"))
        return found(modules[0], name)(*args, **kwargs)

    _converse(connection, do, lambda error: explain(error, answers, bool(modules)))


def settle(connection: int, printed: int, answers: Path, scratch: Path, *kept: int) -> None:
    """Lock this process in, with a folder that it may write to and files to keep."""
    for stream in (1, 2):
        os.dup2(printed, stream)
    keep_only(connection, *kept)
    faulthandler.disable()  # what a crash looks like inside is no help to a student
    scratch = Path(tempfile.mkdtemp(dir=scratch))  # a name that nobody else knows
    os.chdir(scratch)
    os.environ |= {"TMPDIR": str(scratch), "TRITON_CACHE_DIR": str(scratch / "triton")}
    tempfile.tempdir = None  # an import may have looked it up
    hide_memory(False)
    shut.install()
    confine.limit(MEMORY)
    confine.lock_in(scratch, beside)
    confine.no_meeting()
    sys.path.insert(0, str(answers.parent))


def of_grader(topic: Path) -> list[Path]:
    """The tests in a topic's folder and what measures for them, compiled too if it has been run."""
    names = ("test_*.py", "probe.py", "ranks.py", "__pycache__")
    return [file for name in names for file in topic.glob(name)]


def history(course: Path) -> list[Path]:
    """Where git keeps what is, and was, in the course: its own folder, and one that it shares."""
    git = course / ".git"
    found = [git]
    with contextlib.suppress(OSError, ValueError):
        if git.is_file():
            found.append(git.parent / git.read_text().removeprefix("gitdir:").strip())
        found.append(found[-1] / (found[-1] / "commondir").read_text().strip())
    return found


@contextlib.contextmanager
def alone() -> Iterator[NoReturn]:
    """End this process at the end of it, with what went wrong among what the answer has printed."""
    status = 1
    try:
        yield
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


class Missing(Exception):
    """The answers have no function of that name."""


def found(module: ModuleType, name: str) -> Callable[..., Any]:
    """The function of that name in the answers, or Missing."""
    function = getattr(module, name, None)
    if not callable(function):
        raise Missing(f"there is no function {name} in answers.py")
    return function


def load(path: Path, name: str, known: bool = True) -> ModuleType:
    """The module in the file `path`; `import name` finds it too where it is to be `known`."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    if known:
        sys.modules[name] = module
    exec(_compiled(str(path), path.read_bytes()), vars(module))
    return module


@cache
def _compiled(path: str, text: bytes) -> CodeType:
    """The code of a text, compiled once for this process and those forked from it."""
    return compile(text, path, "exec", dont_inherit=True)


def explain(error: BaseException, answers: Path, loaded: bool) -> tuple[str, list]:
    """What went wrong as data: its sort, the exception's name, its text, the line in answers.py."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(answers)]
    sort = "raised" if loaded else "import"
    if isinstance(error, Missing):
        sort = "missing"
    if isinstance(error, NotImplementedError) and not str(error):
        sort = "unwritten"
    line, words = lines[-1] if lines else None, str(error)
    if isinstance(error, SyntaxError) and error.filename == str(answers):
        line, words = error.lineno, error.msg  # its str() names the file and the line as well
    return sort, [type(error).__name__, words[:2000], line]


def how_it_ended(running: Launched) -> str:
    """In words, how a process ended that has closed its connection."""
    code = None
    with contextlib.suppress(RuntimeError, OSError):
        (outcome,) = running.wait(PARTING) or (None,)
        code = outcome and outcome.code
    if code is None or code == -signal.SIGKILL:
        return "lost its process, or its connection to the grader"
    how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    return f"ended its process {how}"


# --- a measuring process --------------------------------------------------------------------------


def measure(job: Job, rank: int, folder: str) -> NoReturn:
    """Run the probe's functions on an answer, as the tests ask, until this process is killed."""
    from weft.grade.host import Answer

    confine.limit(MEMORY)
    connection, printed = job.files
    answers, tests, _ = paths = [Path(path) for path in json.loads(job.payload)]
    probe = load(tests / "probe.py", "probe", known=False)
    if "weft.run.world" in sys.modules:
        keep_copy(clean.channel.fileno(), printed)  # ranks are forked from it
    answer = Answer(clean_copy(), [str(path) for path in paths], printed)

    def do(home: str, name: str, args: list, kwargs: dict) -> Any:
        return getattr(probe, name)(answer, *args, **kwargs)

    def say(error: BaseException) -> tuple[str, list]:
        if isinstance(error, Gone):
            return "stopped", ["", how_it_ended(answer.running), None]
        if isinstance(error, Tampered):
            answer.end()
            return "tampered", ["", f"the answer's process has sent {error}", None]
        if type(error).__name__ == "Told":
            return "said", ["", str(error), getattr(error, "hint", None)]
        if isinstance(error, Raised):
            return error.sort, [error.name, error.words, error.line]
        return explain(error, answers, True)

    _converse(connection, do, say)


def _converse(
    connection: int,
    do: Callable[[str, str, list, dict], Any],
    say: Callable[[BaseException], tuple[str, list]],
) -> NoReturn:
    """Do what is asked on a connection, say what it raises, and exit when it is closed."""
    with alone(), socket.socket(fileno=connection) as channel:
        while request := receive(channel):
            ticket, *asked = data.loads(request)
            try:
                reply = _packed(ticket, do(*asked))
            except BaseException as error:
                reply = data.dumps([ticket, *say(error)])
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            send(channel, reply)


def _packed(ticket: str, value: Any) -> bytes:
    """The reply that carries a value, or says what in it cannot be carried."""
    try:
        reply = data.dumps([ticket, "value", value])
    except TypeError as error:
        return data.dumps([ticket, "unfit", str(error)])
    if len(reply) > MOST:
        return data.dumps([ticket, "unfit", f"more than {MOST >> 20} MiB"])
    return reply
