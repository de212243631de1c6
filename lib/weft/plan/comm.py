"""Lower a schedule: add the sends and the receives between its ranks, in a safe order.

A schedule says what each rank computes. A rank that talks to the next with blocking messages
also needs to know when to send and when to receive, and in a wrong order nobody gets on: two
neighbours that both send first wait for each other for ever.
"""

from dataclasses import replace

from weft.plan.schedule import Action, Plan, messages, naive, validate
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
    if not fuse:
        return naive(plan)
    return replace(plan, rows=_agreed(plan), lowered="fused")


def _agreed(plan: Plan) -> tuple[tuple[Action, ...], ...]:
    """Each rank's work and messages in the order in which the unit-cost simulation has them."""
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
