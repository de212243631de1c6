"""The sliders of memory: what one device keeps of a model, and what would fit."""

from weft.draw.memory import kept, stages_svg
from weft.explore.box import chosen, explored
from weft.plan.arguments import sizes
from weft.plan.hardware import CHIPS
from weft.plan.memory import RESERVE, STAGES
from weft.plan.shape import SHAPES
from weft.plan.units import binary


@explored
def fits(
    model: str = "llama2-70b",
    chip: str = "h100",
    d: int = 64,
    t: int = 1,
    microbatch: int = 1,
    recompute: str = "full",
    sequence: bool = True,
    attention: str = "flash",
) -> tuple[str, str]:
    """A model on d data parallel times t tensor parallel devices, under each stage."""
    shape, device = chosen("model", model, SHAPES), chosen("chip", chip, CHIPS)
    d, t = sizes(d=d, t=t)
    how = {"microbatch": microbatch, "t": t, "recompute": recompute}
    how |= {"sequence_parallel": bool(sequence), "attention": attention}
    bars = {stage: sum(kept(shape, d, stage, **how)) for stage in STAGES}
    limit = device.memory - RESERVE
    least = next((stage for stage in STAGES if bars[stage] <= limit), None)
    name = chip.upper()
    where = f"On {d * t:,} device{'s' * (d * t > 1)}"
    if least is None:
        short = (bars[3] - limit) / 1e9
        summary = f"{where} no stage fits: stage 3 lacks {short:,.1f} GB on each {name}"
    else:
        left = (limit - bars[least]) / 1e9
        summary = f"{where} it fits from stage {least} on, with {left:,.1f} GB left on each {name}"
    summary += (
        f", beside a reserve of {binary(RESERVE)} for the CUDA context, NCCL's buffers and "
        "fragmentation, which are not counted."
    )
    if sequence and t == 1:
        summary += " Sequence parallelism divides by t, which is 1 here."
    title = f"{model}: one of {d * t:,} devices, d = {d}, t = {t}"
    return stages_svg(shape, d, [device], title, **how), summary
