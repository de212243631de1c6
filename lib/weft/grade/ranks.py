"""An answer on real ranks: each rank is a measuring process with an answer's process behind it.

The ranks of a launch speak to each other; the answers do not. What an answer sends goes through a
function that its rank has handed to it, and so does what it receives: there is no other way. Each
rank writes down what its answer does, so that it can be told who waited for whom when nobody goes
on, or where an answer raised. Where all ranks have to make the same call they first tell each other
which one they make (`meet`), so that nobody waits for what will not come.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from weft.grade.bridge import Gone, Raised, Tampered
from weft.grade.host import Answer
from weft.grade.worker import clean_copy, how_it_ended, load

STALL = 10.0  # seconds in which an answer neither calls anything nor returns
COMPUTES = 3  # times as long, if it computes with torch meanwhile
MOST = 300.0  # seconds that all cases may take
PAGE = 8192  # bytes of a diary
SAME_CALLS = "every rank has to make the same calls, in the same order and equally often"
WAITS = "each waits for what another one was to send first"


class Told(Exception):
    """What went wrong on ranks, as it is to be told; `hint` takes the place of the test's."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class Misfit(Told):
    """What one rank's answer gave to a function that it was handed; nothing was sent."""


class Diary:
    """What a rank's answer does at the moment, in a file that outlives the rank."""

    def __init__(self, folder: str, rank: int, stall: float) -> None:
        self.folder, self.rank, self.stall = Path(folder), rank, stall
        self.file = os.open(self.folder / str(rank), os.O_RDWR | os.O_CREAT, 0o600)
        self.now: dict[str, Any] = {"state": "begins", "calls": 0}
        self.lock = threading.Lock()
        self.note()

    def note(self, **facts: Any) -> None:
        """Write down what is different now."""
        with self.lock:
            self.now |= facts
            self.moved = self.since = time.monotonic()
        self.write()

    def write(self) -> None:
        """Have the file say what is so now, and since when nothing has been heard."""
        with self.lock:
            text = json.dumps(self.now | {"since": self.since}).encode()
            os.pwrite(self.file, text[:PAGE].ljust(PAGE), 0)

    def watch(self) -> None:
        """End this process when its answer does nothing for too long, or all wait for each other.

        Who waits for an answer that computes has to wait as long as that may.
        """
        while True:
            time.sleep(self.stall / 50)
            self.write()
            if self.stalls(time.monotonic()):
                self.last_entry()
                os.kill(os.getpid(), signal.SIGKILL)

    def stalls(self, now: float) -> bool:
        """Whether nothing more is to be expected."""
        state, long_ago = self.now["state"], now - self.stall
        if state == "working":
            return self.since < long_ago or self.moved < now - COMPUTES * self.stall
        if state not in ("calling", "returned") or self.since > long_ago:
            return False
        others = _diaries(self.folder)
        return all(other.get("since", now) < long_ago for other in others if _is_in(other))

    def last_entry(self) -> None:
        """Keep what all ranks do now, before the end of this one makes others fail."""
        told = _diaries(self.folder)
        with suppress(FileExistsError), open(self.folder / "stall", "x") as file:
            json.dump(told, file)


class Table:
    """Where ranks tell each other what they are about to do: all tell the first, and it all.

    Through named pipes, in the folder of the diaries, since a word by gloo takes as long as all
    that it is about. They do not close when a rank ends: who watches over the ranks says so.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.pipes: dict[str, BinaryIO] = {}

    def pipe(self, name: str) -> BinaryIO:
        """Both ends of a pipe as one file; whoever comes first makes it."""
        if name not in self.pipes:
            path = self.folder / name
            with suppress(FileExistsError):
                os.mkfifo(path, 0o600)
            self.pipes[name] = os.fdopen(os.open(path, os.O_RDWR), "rb")
        return self.pipes[name]

    def tell(self, words: bytes, n: int) -> list[bytes]:
        """The line that each of the first n ranks tells, once all have, by rank."""
        if self.rank:
            os.write(self.pipe(f"from {self.rank}").fileno(), words + b"\n")
            return [self.pipe(f"to {self.rank}").readline() for _ in range(n)]
        said = [words + b"\n", *(self.pipe(f"from {r}").readline() for r in range(1, n))]
        for r in range(1, n):
            os.write(self.pipe(f"to {r}").fileno(), b"".join(said))
        return said


class RankAnswer(Answer):
    """The answer on one rank, whose every call is noted."""

    def __init__(self, diary: Diary, paths: list[str], printed: int) -> None:
        super().__init__(clean_copy(), paths, printed)
        self.diary, self.world = diary, None
        self.table = Table(diary.folder, diary.rank)
        self.refused: Told | None = None

    def at(self, case: str, world: Any) -> None:
        """What is run from here on, in words, and by whom."""
        self.world = world
        self.diary.note(case=case, n=world.size, calls=0, state="working", doing="", where="")

    def run(self, name: str, args: tuple, kwargs: dict) -> Any:
        self.diary.note(state="working", doing=name, function=name)
        try:
            value = super().run(name, args, kwargs)
        except Raised:
            if self.refused is None:
                raise
        if self.refused is not None:  # an answer cannot pass over it
            raise self.refused
        self.diary.note(state="returned")
        return value

    def do(self, kind: str, *content: Any) -> Any:
        if kind == "torch":
            self.diary.since = time.monotonic()
            return super().do(kind, *content)
        if self.refused is not None:
            raise self.refused
        thing, name = content[:2]
        called = getattr(thing, "__name__", type(thing).__name__)
        called = called if name == "__call__" else f"{called.lower()}.{name}"
        if kind == "call":
            calls = self.diary.now["calls"] + 1
            self.diary.note(state="calling", doing=called, what="", where=content[-1], calls=calls)
        try:
            return super().do(kind, *content)
        except Misfit as error:
            self.refused = Misfit(f"{error}{_in(self.diary.now)}", error.hint)
            raise self.refused from None
        except Told as error:
            self.refused = error
            raise
        finally:
            self.diary.note(state="working")

    def meet(self, what: str = "", **facts: Any) -> list[dict[str, Any]]:
        """What every rank does here, once all are here: their diaries, with these facts.

        Told unless all make the same call with the same `what`, or all have returned.
        """
        now = self.diary.now
        mine = {key: now[key] for key in ("state", "doing", "calls", "where")} | facts
        text = json.dumps(mine | {"what": what}).encode()
        said = [json.loads(one) for one in self.table.tell(text, self.world.size)]
        calls = {one["state"] == "calling" and (one["doing"], one["what"]) for one in said}
        if len(calls) > 1:
            unlike = "the ranks do not make the same calls"
            raise Told(_apart(now["case"], dict(enumerate(said)), unlike), SAME_CALLS)
        return said


def run(
    answer: Answer, file: Path, function: str, cases: Sequence[tuple], stall: float = STALL
) -> list[list[Any]]:
    """What function(world, answer, *args) of a file beside the probe gives for each (n, *args).

    A case is run by the first n of the ranks, which are started once; for each case comes a list
    by rank. Cases come smallest first: Told where an answer raises or its process ends on a rank,
    or where nobody goes on.
    """
    from weft.run.world import RankFailed, launch

    n = max(case[0] for case in cases)
    scratch = Path(answer.paths[2])
    with tempfile.TemporaryDirectory(dir=scratch.parent) as folder:
        asked = folder, str(file), function, answer.paths, answer.printed, cases, stall
        try:
            measured = launch(_rank, n, *asked, backend="gloo", timeout=MOST)
        except RankFailed as failure:
            for diary in _diaries(Path(folder)):
                if "tampered" in diary:
                    raise Tampered(diary["tampered"]) from None
            raise _told(Path(folder), scratch, answer.paths[0], failure) from failure
    return [[measured[rank][i] for rank in range(case[0])] for i, case in enumerate(cases)]


def written(answer: Answer, name: str, *nothing: Any) -> None:
    """Raise what an answer raises that is not there at all, before ranks are started for it."""
    try:
        answer.run(name, nothing, {})
    except Raised as error:
        if error.sort in ("import", "missing"):
            raise
    except Gone:
        raise Told(
            f"{name}({', '.join(map(repr, nothing))}) {how_it_ended(answer.running)}"
        ) from None


# --- on a rank ------------------------------------------------------------------------------------


def _rank(
    world: Any,
    folder: str,
    file: str,
    function: str,
    paths: list[str],
    printed: int,
    cases: Sequence[tuple],
    stall: float,
) -> list[Any]:
    """One rank: the answer's process behind it, the diary, and the cases that it takes part in."""
    diary = Diary(folder, world.rank, stall)
    threading.Thread(target=diary.watch, daemon=True).start()
    trace = _trace(Path(paths[2]), world.rank)
    trace.parent.mkdir(parents=True, exist_ok=True)
    around = [*paths[:2], str(trace.parent), str(trace), str(stall / 4)]
    answer = RankAnswer(diary, around, printed)
    body: Callable[..., Any] = getattr(load(Path(file), "ranks", known=False), function)
    measured, worlds = [], _first(world, {n for n, *_ in cases})
    with _noted(diary, answer):
        for at, (n, *args) in enumerate(cases):
            diary.note(at=at, state="aside")
            measured.append(body(worlds[n], answer, *args) if n in worlds else None)
        diary.note(state="done")
    answer.end()
    return measured


def _first(world: Any, sizes: set[int]) -> dict[int, Any]:
    """For each size so many of the ranks, the first, as a world of their own."""
    import torch.distributed as dist

    groups = {n: dist.new_group(list(range(n))) for n in sorted(sizes - {world.size})}
    smaller = {
        n: type(world)(world.rank, n, world.device, group)
        for n, group in groups.items()
        if world.rank < n
    }
    return smaller | {world.size: world}


@contextmanager
def _noted(diary: Diary, answer: Answer) -> Iterator[None]:
    """Note how an answer fails, if it does."""
    told: dict[str, Any] = {}
    try:
        yield
    except Misfit as error:
        told = {"failed": str(error), "hint": error.hint}
        raise
    except Told as error:
        told = {"whole": str(error), "hint": error.hint}
        raise
    except Raised as error:
        line = f" (answers.py, line {error.line})" if error.line else ""
        told = {"failed": f"{error.name}: {error.words}".removesuffix(": ")[:1000] + line}
        raise
    except NotImplementedError:
        told = {"unwritten": True}
        raise
    except Tampered as error:
        told = {"tampered": str(error)}
        raise
    except Gone:
        told = {"failed": f"the answer {how_it_ended(answer.running)}{_in(diary.now, 'after ')}"}
        raise
    except Exception as error:
        told = {"failed": f"{type(error).__name__}: {error}"[:1000]}
        raise
    finally:
        if told:
            diary.note(**told, time=time.monotonic())


# --- what is told ---------------------------------------------------------------------------------


def _diaries(folder: Path) -> list[dict[str, Any]]:
    """What the ranks have written down last, by rank."""
    files = (path for path in folder.iterdir() if path.name.isdigit())
    return [_read(path) for path in sorted(files, key=lambda path: int(path.name))]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _is_in(diary: dict[str, Any]) -> bool:
    """Whether a rank takes part in a case at the moment."""
    return diary.get("state") in ("working", "calling", "returned")


def _told(folder: Path, scratch: Path, answers: str, failure: Exception) -> Exception:
    """What to raise: who waits for whom, or who failed first."""
    if stalled := _read(folder / "stall"):
        first = min(filter(_is_in, stalled), key=lambda diary: diary["at"])
        there = {r: one for r, one in enumerate(stalled) if one.get("at") == first["at"]}
        for rank, diary in there.items():
            if _busy(diary):
                diary["where"] = _stands(_trace(scratch, rank), answers)
        hint = "" if any(map(_busy, there.values())) else WAITS
        return Told(_apart(first["case"], there, "nobody goes on"), hint)
    diaries = _diaries(folder)
    failed = [diary for diary in diaries if "time" in diary]
    if not failed:
        return Told(str(failure))
    first = min(failed, key=lambda diary: diary["time"])
    if first.get("unwritten"):
        return NotImplementedError()
    if "whole" in first:
        return Told(first["whole"], first["hint"])
    head = f"{first.get('case', '')}: on rank {diaries.index(first)}: {first['failed']}"
    others = {r: one for r, one in enumerate(diaries) if one is not first}
    others = {r: one for r, one in others.items() if one.get("at") == first.get("at")}
    return Told("\n".join([head, *_lines(others)]), first.get("hint", ""))


def _busy(diary: dict[str, Any]) -> bool:
    return diary.get("state") == "working"


def _apart(case: str, numbered: dict[int, dict[str, Any]], otherwise: str) -> str:
    """Ranks that do not go on together: those first who need not have been waited for."""
    left = [f"rank {r}" for r, diary in numbered.items() if diary["state"] == "returned"]
    busy = [f"rank {r}" for r, diary in numbered.items() if _busy(diary)]
    if left and len(left) < len(numbered):
        head = f"{' and '.join(left)} returned, and the others wait"
    elif busy:
        head = f"{' and '.join(busy)} neither returned nor called anything more"
    else:
        head = otherwise
    return "\n".join([f"{case}: {head}", *_lines(numbered)])


def _lines(numbered: dict[int, dict[str, Any]]) -> list[str]:
    """What ranks did last, those first that nobody had to wait for."""
    order = {"returned": 0, "working": 1, "calling": 2}
    there = {rank: diary for rank, diary in numbered.items() if _is_in(diary)}
    ranks = sorted(there, key=lambda rank: (order[there[rank]["state"]], rank))
    return [f"  {_does(rank, there[rank])}" for rank in ranks]


def _does(rank: int, diary: dict[str, Any]) -> str:
    calls = diary.get("calls", 0)
    doing = f"{diary.get('doing', '')} {diary.get('what', '')}".strip()
    many = f"{calls} call{'' if calls == 1 else 's'}"
    match diary["state"]:
        case "returned":
            return f"rank {rank} has returned after {many}"
        case "calling":
            return f"rank {rank} is in its call {calls}, {doing}{_in(diary)}"
    last = f", the last {diary['doing']}," if calls else ""
    return f"rank {rank} has made {many}{last} and runs on{_in(diary)}"


def _in(diary: dict[str, Any], before: str = "") -> str:
    """The line of answers.py that a rank is in, or was in when it called last."""
    return f" ({before}{diary['where']})" if diary.get("where") else ""


def _trace(scratch: Path, rank: int) -> Path:
    """Where a rank's answer is written down every so often, line by line (guest.py)."""
    return scratch / f"rank {rank}" / "trace"


def _stands(trace: Path, answers: str) -> str:
    """The line of the answers that was running when it was last looked; empty if not known."""
    text = ""
    with suppress(OSError):
        file = os.open(trace, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(file).st_mode):  # the answer may have put something else there
            text = os.pread(file, 1 << 16, max(0, os.fstat(file).st_size - (1 << 16))).decode(
                errors="replace"
            )
        os.close(file)
    last = text.rpartition("Timeout")[2]
    found = re.search(rf'File "{re.escape(answers)}", line (\d+) in (\w+)', last)
    return f"answers.py, line {found[1]}, in {found[2]}" if found else ""
