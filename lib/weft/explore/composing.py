"""The sliders of the chapter on composing: how a batch is dealt out, and which layout is best."""

from weft.draw.composing import BATCH, dealt_svg
from weft.explore.box import explored
from weft.plan.pipeline import bubble
from weft.plan.units import percent


@explored
def dealt(d: int = 4, microbatch: int = 1, p: int = 8) -> tuple[str, str]:
    """A fixed batch over d pipelines of p stages, and what of d times the devices arrives."""
    picture = dealt_svg(BATCH, d, microbatch, p)
    m = BATCH // (d * microbatch)
    slots, one = microbatch * (m + p - 1), BATCH + p - 1  # one pipeline, microbatches of one
    summary = (
        f"m = {m}: idle over ideal time {percent(bubble.overhead(p, m))}, over all time "
        f"{percent(bubble.fraction(p, m))}. {d * p} GPUs are {one / slots:.1f} times as fast as "
        f"the {p} of one pipeline."
    )
    return picture, summary
