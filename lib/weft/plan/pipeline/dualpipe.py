"""DualPipe: two copies of the model, cut the same way and laid over the ranks from both ends."""

from dataclasses import replace

from weft.plan.arguments import few, sizes
from weft.plan.pipeline.schedules import dualpipe_v
from weft.plan.schedule import Action, Plan


class CopyAction(Action):
    """An action on one of two copies of p stages; those of the second are numbered on from p."""

    def source(self, stages: int) -> tuple[str, int] | None:
        p = stages // 2
        first, last = self.stage % p == 0, self.stage % p == p - 1
        if self.kind == "F":
            return None if first else ("F", self.stage - 1)
        if self.kind in ("B", "BW"):
            return None if last else ("B", self.stage + 1)
        return None


def dualpipe(p: int, m: int) -> Plan:
    """DeepSeek's bidirectional schedule for an even number of ranks, to be drawn and simulated.

    One copy's stages lie on ranks 0 to p - 1, the other's on ranks p - 1 to 0, and each takes half
    of the m microbatches. So ranks r and p - 1 - r hold the same two stages and do the same work
    at the same time: each half of the ranks is `dualpipe_v` on p / 2 ranks, where what crosses the
    middle stays on a rank. The plan counts the m / 2 microbatches of a copy, and its two copies of
    the weights need their gradients summed, so the executor does not take it.

    DeepSeek-AI 2024, section 3.2.1.

    >>> print(*dualpipe(p=2, m=4).rows[1])
    F0 F0 F1 BW0 F1 BW0 BW1 B1 W1
    """
    p, m = sizes(p=p, m=m)
    few(p * m, "actions", p=p, m=m)
    if p % 2:
        raise ValueError(f"p is {p}, must be even: each half of the ranks mirrors the other")
    if m % 2 or m < 2 * p:
        raise ValueError(f"m is {m}, must be even and at least 2 * p = {2 * p} for dualpipe")
    half = dualpipe_v(p // 2, m // 2)

    def mirrored(action: Action) -> CopyAction:
        """The same work on the opposite rank, for the other copy."""
        stage = action.stage
        return CopyAction(action.kind, action.microbatch, (stage + p) % (2 * p))

    # A stage on the V's way down is the first copy's, one on its way up the second's.
    upper = [
        [CopyAction(*a) if a.stage < p // 2 else mirrored(a) for a in row] for row in half.rows
    ]
    lower = [[mirrored(a) for a in row] for row in reversed(upper)]
    rows = tuple(tuple(row) for row in upper + lower)
    ranks = (*range(p), *reversed(range(p)))
    return replace(half, name="dualpipe", p=p, rows=rows, ranks=ranks)
