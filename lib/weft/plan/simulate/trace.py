"""A timeline as a Chrome trace: tracks, slices, and arrows for the messages."""

from collections.abc import Sequence

from weft.plan.schedule import Plan


def perfetto(plan: Plan, spans: Sequence, unit: float = 1.0) -> dict:
    """Trace events of a timeline's spans, microseconds, one thread per rank.

    Complete events ("X") are the actions. A flow ("s" to "f") leads from the action that made a
    tensor to the one on another rank that consumed it. Google, "Trace Event Format".
    """
    scale = unit * 1e6
    events = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": plan.name}}]
    for rank in range(plan.p):
        name = {"name": f"rank {rank}"}
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": name})
    made = {}
    for span in spans:
        kind, microbatch, stage = span.action
        events.append(
            {
                "name": str(span.action),
                "cat": kind,
                "ph": "X",
                "pid": 0,
                "tid": span.rank,
                "ts": span.start * scale,
                "dur": (span.end - span.start) * scale,
                "args": {"microbatch": microbatch, "stage": stage},
            }
        )
        if span.computes and kind != "W":
            made[kind[0], stage, microbatch] = span
    for span in spans:
        events += _flow(span, made, plan, scale)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _flow(span, made, plan, scale) -> list[dict]:
    source = span.action.source(plan.stages) if span.computes else None
    if source is None or plan.ranks[source[1]] == span.rank:
        return []
    maker = made[*source, span.action.microbatch]
    flow = {"name": "message", "cat": "message", "pid": 0}
    flow["id"] = f"{source[0]}{span.action.microbatch}.{source[1]}"
    start = {**flow, "ph": "s", "tid": maker.rank, "ts": maker.end * scale}
    finish = {**flow, "ph": "f", "bp": "e", "tid": span.rank, "ts": span.start * scale}
    return [start, finish]
