"""How a model is cut: how many devices along each axis, in which schedule, and what is kept."""

from dataclasses import dataclass, fields

from weft.plan.arguments import chosen, instance, sizes, whole
from weft.plan.pipeline import SCHEDULES
from weft.plan.shape import RECOMPUTE
from weft.plan.zero import checked_stage

FOLDED = "zb_v", "dualpipe_v"  # two stages on each rank
STRAIGHT = "gpipe", "zb_h1", "zb_h2"  # one stage on each rank
AXES = "p", "d", "c", "t"  # the slowest first


@dataclass(frozen=True)
class Layout:
    """p pipeline stages of t tensor ranks, d copies that share the batch, c ranks a sequence.

    Devices are p t d c. e ranks share the experts: they are some of a stage's d c, which e divides.
    Each rank has v stages of the `schedule`, and works on `microbatch` sequences at once. `zero` is
    the stage of ZeRO over the d c ranks; `recompute` is one of weft.plan.shape's.

    1F1B with v above 1 is the interleaved one; a schedule on a V has v = 2.

    >>> layout = Layout(p=8, t=8, d=4, v=3, sequence_parallel=True, recompute="selective")
    >>> print(layout, layout.devices)
    p=8 t=8 d=4 v=3 interleaved, microbatch 1, sequence parallel, selective recompute 256
    """

    p: int = 1
    t: int = 1
    d: int = 1
    c: int = 1
    e: int = 1
    v: int = 1
    microbatch: int = 1
    schedule: str = "one_f_one_b"
    zero: int = 0
    sequence_parallel: bool = False
    recompute: str = "none"

    def __post_init__(self):
        counts = ("p", "t", "d", "c", "e", "v", "microbatch")
        for name, size in zip(
            counts, sizes(**{name: getattr(self, name) for name in counts}), strict=True
        ):
            object.__setattr__(self, name, size)
        chosen("schedule", self.schedule, SCHEDULES)
        chosen("recompute", self.recompute, RECOMPUTE)
        object.__setattr__(self, "zero", checked_stage(self.zero, "zero"))
        instance(bool, sequence_parallel=self.sequence_parallel)
        if (self.d * self.c) % self.e:
            raise ValueError(f"e is {self.e}, must divide d * c = {self.d * self.c}")
        if self.v > 1 and self.schedule == "one_f_one_b":
            object.__setattr__(self, "schedule", "interleaved")
        if self.schedule in FOLDED:
            whole("v", self.v, most=2)
            object.__setattr__(self, "v", 2)
        if self.v > 1 and self.schedule in STRAIGHT:
            raise ValueError(f"v is {self.v}, must be 1 with schedule {self.schedule!r}")

    @property
    def devices(self) -> int:
        """How many devices it takes: p t d c."""
        return self.p * self.t * self.d * self.c

    def microbatches(self, batch: int) -> int:
        """m, the microbatches of a step: batch / (d microbatch), which has to be whole.

        c is no part of it: it divides a sequence, not the batch.

        >>> Layout(p=8, t=4, d=4, v=6).microbatches(256)
        64
        """
        batch, each = whole("batch", batch), self.d * self.microbatch
        if batch % each:
            raise ValueError(f"batch is {batch}, must be a multiple of d * microbatch = {each}")
        return batch // each

    def __str__(self) -> str:
        """One line: the axes longer than 1, the schedule of a pipeline, and what is not default."""
        axes = [f"{name}={getattr(self, name)}" for name in ("p", "t", "d", "c", "e", "v")]
        parts = [" ".join(axis for axis in axes if not axis.endswith("=1")) or "one device"]
        if self.p > 1:
            parts[0] += f" {self.schedule}"
        parts.append(f"microbatch {self.microbatch}")
        if self.zero:
            parts.append(f"ZeRO-{self.zero}")
        if self.sequence_parallel:
            parts.append("sequence parallel")
        if self.recompute != "none":
            parts.append(f"{self.recompute} recompute")
        return ", ".join(parts)


FIELDS = tuple(field.name for field in fields(Layout))
