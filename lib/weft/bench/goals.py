"""What is asked of the kernels on a GPU, in one place, and what records say of it.

A goal is a share of somebody else's rate in the same run, or, where one is named, a rate that
will do as well. Both are read from one result at one size; the sizes beside it are told too.
"""

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import NamedTuple

from weft.bench.record import Measurement, Record
from weft.plan.units import quantity

BEST = "the best peer"
NOT_OURS = ("weft", "FP8", "bf16")  # what our own contestants' names begin with
CEILINGS = ("one dense product",)  # what no peer is measured by: it computes less


class Goal(NamedTuple):
    """At least `share` of what `over` does at one size of one record, or `rate` of its unit.

    A share of infinity leaves the rate alone.
    """

    what: str
    record: str
    size: str
    share: float
    over: str = BEST
    ours: str = "weft"
    rate: float | None = None
    unit: str = "FLOP/s"

    @property
    def asked(self) -> str:
        """The goal in words.

        >>> Goal("", "r", "T = 8", 0.65).asked, Goal("", "r", "T = 8", 1, "cudnn", rate=6e14).asked
        ('0.65 of the best peer', '1.00 of cudnn, or 600 TFLOP/s')
        """
        asked = [f"{self.share:.2f} of {self.over}"] if isfinite(self.share) else []
        return ", or ".join(asked + ([quantity(self.rate, self.unit)] if self.rate else []))


LONG, LINEAR = "causal, T = 16384", "T = 16384"
WINDOW = "T = 16384, window = 1024"
EXPERTS = "forward, E128 H2048 I768 k8 T32768"
RULES = {"gated": "gate", "GLA": "channels", "retention": "retention"}
RULES |= {"delta": "delta", "gated delta": "gated-delta"}
GOALS = (
    Goal("Triton forward", "attention-forward-128", LONG, 0.65),
    Goal("Triton backward", "attention-backward-128", LONG, 0.65),
    Goal("Gluon forward", "hopper-forward-128", LONG, 1.00, "cudnn", rate=660e12),
    Goal("Gluon backward", "hopper-backward-128", LONG, 0.95, rate=520e12),
    Goal("FP8 forward", "hopper-fp8-128", LONG, 0.95, "cudnn, FP8", ours="FP8", rate=1000e12),
    Goal("paged decode", "decode-kernel", "64 × 4096, 32 heads on 8", 0.90, "copy", unit="B/s"),
    *(
        Goal(f"{rule}, {way}", f"linear-{record}-{way}-128", LINEAR, 1.00, "fla", unit="token/s")
        for rule, record in RULES.items()
        for way in ("forward", "backward")
    ),
    *(
        Goal(f"scan, {way}", f"griffin-scan-{way}", "8 × 4096 × 2560", 0.90, "copy", unit="B/s")
        for way in ("forward", "backward")
    ),
    *(
        Goal(f"window, {way}", "sparse-window", f"{way}, {WINDOW}", share, over)
        for way in ("forward", "forward and backward")
        for over, share in (("flex", 1.00), ("weft, dense", 1 / 1.15))
    ),
    Goal("experts' MLP", "experts-grouped", EXPERTS, 1.10),
    Goal("experts' MLP", "experts-grouped", EXPERTS, 0.90, *CEILINGS),
    Goal("experts' MLP", "experts-grouped", EXPERTS, inf, rate=400e12),
    *(
        Goal(what, f"tensor-{record}", size, 0.90, "copy", unit="B/s")
        for what, record, size in (
            ("RMSNorm, forward", "norm", "forward, D = 4096"),
            ("RMSNorm, backward", "norm", "backward, D = 4096"),
            ("SwiGLU, forward", "swiglu", "forward, F = 14336"),
            ("SwiGLU, backward", "swiglu", "backward, F = 14336"),
            ("cross-entropy", "cross-entropy", "forward and backward, N = 131072"),
        )
    ),
    Goal("fused Adam", "precision-adam", "one tensor of 2^26", 0.90, "copy", unit="B/s"),
)
NOT_YET = "not yet measured"


class Reached(NamedTuple):
    """What one record says of a goal: the rate, the share (None without the peer), and the chip."""

    rate: float
    share: float | None
    chip: str
    enough: bool


def reached(goal: Goal, record: Record, size: str | None = None) -> Reached | None:
    """What a record says of a goal at a size, the goal's own if None; None where it says nothing.

    A share is the median over rounds of ours over theirs in the same round.
    """
    size = size or goal.size
    here = [r for r in record.results if r.name == size and r.unit == goal.unit]
    ours = next((r for r in here if r.who == goal.ours), None)
    if ours is None:
        return None
    other = _over(goal, here)
    share = ours.over(other).value if other else None
    enough = (share or 0) >= goal.share or ours.value >= (goal.rate or inf)
    return Reached(ours.value, share, record.chip, enough)


def _over(goal: Goal, here: Sequence[Measurement]) -> Measurement | None:
    if goal.over != BEST:
        return next((r for r in here if r.who == goal.over), None)
    peers = [r for r in here if not r.who.startswith((*NOT_OURS, *CEILINGS))]
    return max(peers, key=lambda r: r.value, default=None)


def verdict(goal: Goal, records: Iterable[Record], chip: str = "h200") -> tuple[str, str, str]:
    """What was measured at the goal's size, whether it is enough, and the shares at all sizes."""
    record = next((r for r in records if (r.name, r.chip) == (goal.record, chip)), None)
    found = record and reached(goal, record)
    if not found:
        return "", NOT_YET, ""
    said = quantity(found.rate, goal.unit)
    if found.share is not None:
        said = f"{found.share:.2f}, {said}"
    every = [reached(goal, record, name) for name in dict.fromkeys(r.name for r in record.results)]
    shares = [one.share for one in every if one and one.share is not None]
    over_all = f"{min(shares):.2f} to {max(shares):.2f}" if shares else ""
    return said, "reached" if found.enough else f"missed by {_missed(goal, found):.1%}", over_all


def _missed(goal: Goal, found: Reached) -> float:
    """By how much of the goal, the nearer of share and rate."""
    asked = found.share is not None and isfinite(goal.share)
    gaps = [1 - found.share / goal.share] if asked else []
    gaps += [1 - found.rate / goal.rate] if goal.rate else []
    return min(gaps, default=1.0)
