"""What a device holds beside what it keeps: weights and gradients on their way, logits, a reserve.

None of it lies there for a whole step, but it has to have room at the worst moment, so it decides
what fits. Two moments compete: the loss, when the logits are there, and backward through a layer,
when what was not kept of it is, and its gradient. What is gathered is there at both.
"""

from dataclasses import dataclass, fields

from weft.plan.arguments import sizes, whole
from weft.plan.memory.activation import activations, of_layer
from weft.plan.memory.partition import divided, heaviest, of_layers
from weft.plan.memory.states import STAGES
from weft.plan.shape import ModelShape

RESERVE = 2 * 2**30  # a guess: CUDA context, libraries, collectives' buffers, fragmentation
LOGIT = 8  # bytes: a logit in fp32, and its gradient
LEFT_OUT = (
    "dropout's absence (masks are counted)",
    "what a loss computes beside fp32 logits and their gradient",
    "temporary copies within an operation",
    "loading and saving",
)


@dataclass(frozen=True)
class Passing:
    """Bytes of each kind that a device has for moments."""

    gathered: int
    reduced: int
    recomputed: int
    logits: int
    reserve: int

    @property
    def total(self) -> int:
        """The most that is there at once, with the reserve."""
        worst = max(self.logits, self.reduced + self.recomputed)
        return self.reserve + self.gathered + worst

    def __str__(self) -> str:
        """What there is of it, in GiB."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return ", ".join(f"{name} {n / 2**30:.2f}" for name, n in parts.items() if n)


def passing(
    shape: ModelShape,
    microbatch: int,
    stage: int,
    t: int = 1,
    p: int = 1,
    m: int = 1,
    v: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    attention: str = "naive",
    live: int | None = None,
    reserve: int = RESERVE,
    stored: int = 2,
) -> Passing:
    """What passes through the fullest device under a stage of ZeRO.

    Under stage 3 the piece at work is gathered, a layer or the table of the vocabulary, and the
    layer that comes next, in 16 bits; or as many parameters as `live` says, where a configuration
    bounds them. Under stages 2 and 3 as many have whole gradients in 16 bits, one that is computed
    and one that is being reduced; where a sum is in fp32, its copy takes two bytes more.
    A layer that is recomputed is kept as if it were not; "selective" recomputes the scores of one.
    The logits of a microbatch are on the last of p stages, which keeps one microbatch of
    activations where the first keeps p: they count as far as they are more than that leaves.
    `stored` is of_layer's.

    >>> from weft.plan.shape import SHAPES
    >>> print(passing(SHAPES["llama3-8b"], 1, stage=3, recompute="full", attention="flash"))
    gathered 1.38, reduced 1.38, recomputed 1.06, logits 7.83, reserve 2.00
    """
    t, p = divided(shape, t, p, v)
    microbatch, m, v = sizes(microbatch=microbatch, m=m, v=v)
    reserve = whole("reserve", reserve, least=0)
    if stage not in STAGES:
        raise ValueError(f"stage is {stage!r}, must be 0, 1, 2 or 3")
    layer = max(of_layers(kind, t) for kind in shape.kinds)
    piece = max(layer, -(-shape.vocab // t) * shape.table)
    two, gathered = piece + layer, 0
    if stage >= 3:
        most = two if live is None else max(piece, whole("live", live, least=0))
        gathered = 2 * min(most, shape.params)
    how = {"sequence_parallel": sequence_parallel, "attention": attention, "stored": stored}
    again = 0
    if recompute != "none":
        again = max(
            of_layer(kind, microbatch, t, **how)
            - of_layer(kind, microbatch, t, recompute=recompute, **how)
            for kind in shape.kinds
        )
    logits = LOGIT * microbatch * shape.seq * -(-shape.vocab // t)
    if p > 1:
        kept = [
            (kind.layers, of_layer(kind, microbatch, t, recompute=recompute, **how))
            for kind in shape.kinds
        ]
        last = heaviest(kept, -(-shape.layers // p))
        first = activations(shape, microbatch, t, p, m, v, recompute=recompute, **how)
        logits = max(0, logits + last - first)
    reduced = 2 * min(two, shape.params) if stage >= 2 else 0
    return Passing(gathered, reduced, again, logits, reserve)
