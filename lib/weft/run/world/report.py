"""What a launch has come to: the values, or who failed first and why; and what the ranks print."""

from __future__ import annotations

import linecache
import pickle
import re
import sys
from dataclasses import replace
from typing import Any

from weft.process.job import Outcome
from weft.process.rank import ours


class RankFailed(RuntimeError):
    """A rank raised, died or hung: the root cause first, then what else is known.

    rank and cause are the root's; failures holds every rank's Outcome, the root's first.
    """

    def __init__(self, failures: tuple[Outcome, ...], n: int) -> None:
        super().__init__(failures, n)
        self.failures, self.n = failures, n
        root = failures[0]
        self.rank, self.cause, self.detail = root.rank, _says(root), root.detail

    def __str__(self) -> str:
        root, *others = self.failures
        lines = [f"rank {root.rank} of {self.n}: {self.cause}"]
        lines += ["", root.detail] if root.detail else []
        for outcome in others:
            if outcome.kind in ("raised", "died"):
                lines += ["", f"then rank {outcome.rank}: {_says(outcome).splitlines()[0]}"]
            elif outcome.kind == "hung":
                lines += ["", f"and rank {outcome.rank}: {_says(outcome)}", "", outcome.detail]
        for kind, words in (("returned", "had returned"), ("stopped", "stopped in their work")):
            ranks = [str(outcome.rank) for outcome in others if outcome.kind == kind]
            lines += ["", f"{words}: {', '.join(ranks)}"] if ranks else []
        return "\n".join(lines)


def _says(outcome: Outcome) -> str:
    return outcome.cause or outcome.kind


def returned(outcomes: list[Outcome], n: int, timeout: float) -> list[Any]:
    """What the ranks returned, or RankFailed with the root cause first."""
    failures = sorted((_legible(outcome, timeout) for outcome in outcomes), key=_blame)
    if failures[0].kind != "returned":
        raise RankFailed(tuple(failures), n)
    return [_unpacked(outcome, n) for outcome in outcomes]


def _unpacked(outcome: Outcome, n: int) -> Any:
    try:
        return pickle.loads(outcome.value)
    except Exception as error:
        cause = f"what it returned cannot be unpickled here: {type(error).__name__}: {error}"
        failure = Outcome(outcome.rank, "raised", cause)
        raise RankFailed((failure,), n) from error


def _blame(outcome: Outcome) -> tuple:
    """The root cause first.

    A death comes before an exception: a rank that raised keeps its connections open, so only a
    dead one makes others raise. Of the hung, those that wait for no other rank come first.
    """
    order = ("died", "raised", "hung", "stopped", "returned")
    return order.index(outcome.kind), outcome.time, _waits(outcome.detail), outcome.rank


def _waits(stack: str) -> bool:
    """Whether a hung rank stands in a call of torch.distributed, waiting for others."""
    innermost = stack.rpartition('  File "')[2]
    return "torch/distributed/" in innermost or ".wait(" in innermost


def _legible(outcome: Outcome, timeout: float) -> Outcome:
    """An outcome with its stack in the order and form of a traceback, if it hung."""
    if outcome.kind != "hung":
        return outcome
    frames = re.findall(r'File "(.*)", line (\d+) in (.*)', outcome.detail)
    lines = ["It was here (most recent call last):"] if frames else []
    for name, line, function in reversed(frames):
        if not ours(name) and name != "<string>":
            source = linecache.getline(name, int(line)).strip()
            lines.append(f'  File "{name}", line {line}, in {function}')
            lines += [f"    {source}"] if source else []
    cause, detail = f"still running after {timeout:g} s", "\n".join(lines)
    return replace(outcome, cause=cause, detail=detail)


class RankOutput:
    """Prints what the ranks write: whole lines, rank by rank, the first as it comes.

    A rank's lines wait for those of the ranks before it, which the launch's end completes, so
    the same program prints the same text.
    """

    def __init__(self, n: int) -> None:
        self.unfinished = {(rank, name): b"" for rank in range(n) for name in ("stdout", "stderr")}
        self.waiting: dict[int, list[tuple[str, str]]] = {rank: [] for rank in range(n)}

    def show(self, rank: int, stream: str, data: bytes) -> None:
        whole, end, rest = (self.unfinished[rank, stream] + data).rpartition(b"\n")
        self.unfinished[rank, stream] = rest
        for line in whole.split(b"\n") if end else []:
            self.waiting[rank].append((stream, f"[{rank}] {line.decode(errors='replace')}\n"))
        if rank == 0:
            self._print(0)

    def _print(self, rank: int) -> None:
        for stream, line in self.waiting[rank]:
            getattr(sys, stream).write(line)
        if self.waiting[rank]:
            sys.stdout.flush()
        self.waiting[rank].clear()

    def close(self) -> None:
        for rank in self.waiting:
            for stream in ("stdout", "stderr"):
                if self.unfinished[rank, stream]:
                    self.show(rank, stream, b"\n")
            self._print(rank)
