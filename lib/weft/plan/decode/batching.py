"""Who is in which step: static batches, continuous ones, and prompts in chunks, over time.

A step of few tokens takes as long as reading the weights does, whatever is in it; from `knee`
tokens on it is bound by compute and grows with them. Time is counted in the shortest step. Yu et
al. 2022 for batches that change at every step; Agrawal et al. 2024 for chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from weft.plan.arguments import chosen, few, instance, row, sizes, whole
from weft.plan.decode.serving import Request

POLICIES = "static", "continuous", "chunked"


class StepPart(NamedTuple):
    """A request in a step: its row, how many of its tokens go in, and whether one comes out."""

    request: int
    row: int
    tokens: int
    prompt: bool
    makes: bool


class BatchedStep(NamedTuple):
    """One step from `begin` to `end`; `held` are rows of requests that are done and still wait."""

    begin: float
    end: float
    parts: tuple[StepPart, ...]
    held: tuple[int, ...] = ()


@dataclass(frozen=True)
class Batching:
    """What a policy made of the requests, step by step."""

    policy: str
    asked: tuple[Request, ...]
    rows: int
    steps: tuple[BatchedStep, ...]

    @property
    def end(self) -> float:
        """When the last request is done."""
        return self.steps[-1].end

    def made(self, request: int) -> list[float]:
        """When each token of a request comes out."""
        request = whole("request", request, least=0, most=len(self.asked) - 1)
        return [s.end for s in self.steps for p in s.parts if p.request == request and p.makes]

    @property
    def first(self) -> float:
        """From a request's arrival to its first token, on average."""
        waits = [self.made(i)[0] - r.arrival for i, r in enumerate(self.asked)]
        return sum(waits) / len(waits)

    @property
    def gap(self) -> float:
        """The longest time between two tokens of a request."""
        times = [self.made(i) for i in range(len(self.asked))]
        return max((b - a for made in times for a, b in pairwise(made)), default=0.0)

    @property
    def rate(self) -> float:
        """Tokens made in the time of the shortest step."""
        return sum(request.output for request in self.asked) / self.end


def batched(
    asked: Sequence[Request], policy: str, rows: int = 4, budget: int = 16, knee: int = 8
) -> Batching:
    """Serve requests with at most `rows` at a time, first come, first served.

    "static" takes the next batch when all of the last are done. "continuous" fills a row as soon
    as it is free, and a newcomer's whole prompt goes into one step, beside the others' tokens.
    "chunked" gives every running request its token first and fills the step with prompt up to
    `budget` tokens. A request arrives at a time, not in a step.

    >>> asked = [Request(4, 3), Request(4, 1), Request(4, 2)]
    >>> [batched(asked, policy, rows=2).end for policy in ("static", "continuous")]
    [5.0, 3.0]
    """
    chosen("policy", policy, POLICIES)
    rows, budget, knee = sizes(rows=rows, budget=budget, knee=knee)
    for i, request in enumerate(row("asked", asked)):
        instance(Request, **{f"asked[{i}]": request})
        if request.prompt < 1 or request.output < 1 or request.arrival < 0:
            raise ValueError(f"asked[{i}] is {request}, must have a prompt, an output and a time")
    few(sum(r.prompt + r.output for r in asked), "tokens")
    if budget < rows:
        raise ValueError(f"budget is {budget}, must be at least rows = {rows}, a token for each")
    return Batching(policy, tuple(asked), rows, tuple(_steps(asked, policy, rows, budget, knee)))


def _steps(asked, policy, rows, budget, knee):
    """The steps one after the other, each as early as it can be."""
    waiting = sorted(range(len(asked)), key=lambda i: asked[i].arrival)
    cached, made = [0] * len(asked), [0] * len(asked)
    where: dict[int, int] = {}  # request -> row, as long as it is held
    now = 0.0
    while waiting or where:
        done = [i for i in where if made[i] == asked[i].output]
        if policy != "static" or len(done) == len(where):
            for i in done:
                del where[i]
            done = []
            while waiting and len(where) < rows and asked[waiting[0]].arrival <= now:
                where[waiting.pop(0)] = min(set(range(rows)) - set(where.values()))
        if not where:
            if waiting:
                now = max(now, float(asked[waiting[0]].arrival))
            continue
        parts, left = [], budget
        running = [i for i in where if i not in done]
        for i in sorted(running, key=lambda i: cached[i] < asked[i].prompt):  # decoding first
            owed = asked[i].prompt - cached[i]
            tokens = max(1, owed if policy != "chunked" else min(owed, left))
            left -= tokens
            cached[i] += tokens
            makes = cached[i] >= asked[i].prompt
            made[i] += makes
            parts.append(StepPart(i, where[i], tokens, owed > 0, makes))
            if policy == "chunked" and left <= 0:
                break
        end = now + max(1.0, sum(part.tokens for part in parts) / knee)
        yield BatchedStep(now, end, tuple(parts), tuple(where[i] for i in done))
        now = end
