"""The sliders of the chapter on composing: how a batch is dealt out, and which layout is best."""

from weft.draw.composing import BATCH, atlas_svg, best, dealt_svg, steps_svg, worked
from weft.draw.composing.steps import BATCH as STEP
from weft.draw.composing.steps import DEVICES
from weft.explore.box import explored
from weft.plan.pipeline import fraction, overhead
from weft.plan.units import percent


@explored
def dealt(d: int = 4, microbatch: int = 1, p: int = 8) -> tuple[str, str]:
    """A fixed batch over d pipelines of p stages, and what of d times the devices arrives."""
    picture = dealt_svg(BATCH, d, microbatch, p)
    m = BATCH // (d * microbatch)
    slots, one = microbatch * (m + p - 1), BATCH + p - 1  # one pipeline, microbatches of one
    summary = (
        f"m = {m}: idle over ideal time {percent(overhead(p, m))}, over all time "
        f"{percent(fraction(p, m))}. {d * p} GPUs are {one / slots:.1f} times as fast as "
        f"the {p} of one pipeline."
    )
    return picture, summary


@explored
def step(
    t: int = 8, p: int = 8, v: int = 1, microbatch: int = 1, zero: int = 0,
    recompute: str = "selective",
) -> tuple[str, str]:  # fmt: skip
    """The chapter's example under another layout; d is what is left of its devices."""
    d = DEVICES // (t * p)
    found = worked(
        t=t, p=p, d=d, v=v, microbatch=microbatch, zero=zero, recompute=recompute,
        sequence_parallel=t > 1,
    )  # fmt: skip
    m = STEP // (d * microbatch)
    picture = steps_svg([(f"t {t}, p {p}, d {d}", found)])
    held = ", ".join(f"{name} {nbytes / 1e9:.0f}" for name, nbytes in found.held.items())
    summary = (
        f"m = {m}. MFU {percent(found.mfu)}, HFU {percent(found.hfu)}. GB: {held}"
        f"{'' if found.fits else ', more than the chip has'}."
    )
    return picture, summary


@explored
def atlas(batch: int = 2048, between: int = 400) -> tuple[str, str]:
    """The map of best layouts for a batch and a port of each GPU."""
    picture = atlas_svg(batch, between)
    found = best("gpt3-175b", 8192, batch, str(between))
    few = best("gpt3-175b", 512, batch, str(between))
    summary = (
        f"{batch:,} sequences are {batch * 2048 / 1e6:.1f} million tokens. GPT-3 on 512 GPUs: "
        f"{few[1].seconds:.1f} s a step; on 8,192: {found[1].seconds:.2f} s, "
        f"{few[1].seconds / found[1].seconds:.1f} times as fast on 16 times as many."
    )
    return picture, summary
