"""From a schedule to a program: put the sends and the receives in.

A schedule says what each rank computes. A rank that talks to the next with blocking messages
also needs to know when to send and when to receive, and a wrong answer stops the world: two
neighbours that both send first wait for each other for ever.
"""

from collections.abc import Iterator
from dataclasses import replace

from weft.plan.pipeline import COMPUTE, RECEIVES, SENDS, Action, Plan, validate
from weft.plan.simulate import simulate

EARLIER, LATER = 0, 1  # at equal times what is sent goes before what is computed next


def lower(plan: Plan, fuse: bool = True) -> Plan:
    """The same plan with every message between ranks as an action.

    With `fuse`, all ranks handle all messages in one order that they agree on: the
    order in which the tensors come into being when every action takes one unit. The
    first message in that order which is not yet through always finds both of its
    ends waiting for it, so nothing can deadlock, whatever the durations and however
    the sends block. Messages that follow each other on a rank with no work between
    are one exchange, posted together and waited for together: Megatron's
    send-forward-receive-backward is the two-message case.

    Without it, each rank receives right before it needs and sends right after it
    has made, one message at a time. That is what one writes first. Under rendezvous
    sends GPipe survives it and 1F1B does not.

    >>> from weft.plan.pipeline import one_f_one_b
    >>> for row in lower(one_f_one_b(p=2, m=2)).rows: print(*row)
    F0 SEND_F0 F1 SEND_F1 RECV_B0 BW0 RECV_B1 BW1
    RECV_F0 F0 RECV_F1 BW0 SEND_B0 F1 BW1 SEND_B1
    >>> for row in lower(one_f_one_b(p=2, m=2), fuse=False).rows: print(*row)
    F0 SEND_F0 F1 SEND_F1 RECV_B0 BW0 RECV_B1 BW1
    RECV_F0 F0 BW0 SEND_B0 RECV_F1 F1 BW1 SEND_B1
    """
    validate(plan)
    if plan.lowered:
        raise ValueError(f"plan {plan.name} is lowered already ({plan.lowered})")
    rows = _agreed(plan) if fuse else _naive(plan)
    return replace(plan, rows=rows, lowered="fused" if fuse else "naive")


def messages(plan: Plan, action: Action) -> tuple[Action | None, Action | None]:
    """The receive that an action needs before it and the send that it needs after it.

    None where there is nothing to pass on, or where the neighbouring stage is on the same rank.
    """
    kind, microbatch, stage = action
    source = action.source(plan.stages)
    receive = send = None
    if source and plan.ranks[source[1]] != plan.ranks[stage]:
        receive = Action(f"RECV_{source[0]}", microbatch, stage)
    target = {"F": stage + 1, "B": stage - 1, "BW": stage - 1}.get(kind, -1)
    if 0 <= target < plan.stages and plan.ranks[target] != plan.ranks[stage]:
        send = Action(f"SEND_{kind[0]}", microbatch, stage)
    return receive, send


def check_messages(plan: Plan) -> None:
    """Raise ValueError unless a lowered plan passes on every tensor once, at a possible time.

    A rank has to receive each tensor from elsewhere before the work that needs it, send each that
    is needed elsewhere after the work that makes it, and do nothing else. Since every piece of
    work is somewhere in a plan, once, each send then has its receive on the rank it goes to.
    """
    for rank, row in enumerate(plan.rows):
        needed = {messages(plan, action)[0] for action in row if action.kind in COMPUTE}
        held, due, sent = set(), set(), set()
        for action in row:
            receive, send = messages(plan, action)
            if action.kind in COMPUTE:
                if receive and receive not in held:
                    raise ValueError(f"{receive!r} is missing before {action!r} on rank {rank}")
                due |= {send} if send else set()
            elif action in held | sent:
                raise ValueError(f"{action!r} comes twice on rank {rank}")
            elif action.kind in RECEIVES:
                if action not in needed:
                    raise ValueError(f"{action!r} on rank {rank} is not needed by what it computes")
                held.add(action)
            elif action in due:
                due.remove(action)
                sent.add(action)
            else:
                raise ValueError(f"{action!r} on rank {rank} has nothing to send, or not yet")
        for action in due:
            raise ValueError(f"{action!r} is missing on rank {rank}")


def peer(plan: Plan, action: Action) -> int:
    """The rank at the other end of a send or a receive."""
    if action.kind not in SENDS + RECEIVES:
        raise ValueError(f"action is {action!r}, must be a send or a receive")
    onward = (action.kind in SENDS) == (action.kind[-1] == "F")
    return plan.ranks[action.stage + (1 if onward else -1)]


def _naive(plan: Plan) -> tuple[tuple[Action, ...], ...]:
    """Every rank's work, each action with its receive before it and its send after it."""

    def row(actions: tuple[Action, ...]) -> Iterator[Action]:
        for action in actions:
            receive, send = messages(plan, action)
            yield from (step for step in (receive, action, send) if step)

    return tuple(tuple(row(actions)) for actions in plan.rows)


def _agreed(plan: Plan) -> tuple[tuple[Action, ...], ...]:
    """Every rank's work and messages, sorted by one clock that all of them share."""
    timed = [[] for _ in range(plan.p)]
    made = {}
    spans = simulate(plan).spans
    for span in spans:
        kind, microbatch, stage = span.action
        made[kind[0], stage, microbatch] = span.end
    for span in spans:
        receive, send = messages(plan, span.action)
        timed[span.rank].append(((span.start, LATER), span.action))
        for step in filter(None, (receive, send)):
            tag = step.message
            timed[span.rank].append(((made[tag], EARLIER, tag), step))
    return tuple(tuple(step for _, step in sorted(row, key=lambda x: x[0])) for row in timed)
