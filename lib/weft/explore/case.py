"""The slider of the appendix: one model on one cluster, under the reader's layout."""

from weft.draw.composing import steps_svg
from weft.explore.box import explored
from weft.plan.case import case_days, case_step
from weft.plan.units import percent


@explored
def layout(
    t: int = 4, p: int = 4, c: int = 2, v: int = 5, zero: int = 1, recompute: str = "none",
    tokens: int = 8192,
) -> tuple[str, str]:  # fmt: skip
    """A step of the case under a layout; d is what is left of its 1,024 GPUs."""
    d = 1024 // (t * p * c)
    batch = (1 << 23) // tokens
    d, c = min(d, batch), c * max(1, d // batch)  # ranks without a sequence share the others'
    v = v if p > 1 and (batch // d) % p == 0 else 1
    found = case_step(tokens, t=t, p=p, c=c, d=d, v=v, zero=zero, recompute=recompute)
    picture = steps_svg([(f"t {t}, p {p}, c {c}, d {d}", found)])
    held = ", ".join(f"{name} {nbytes / 1e9:.0f}" for name, nbytes in found.held.items())
    summary = (
        f"c = {c}, d = {d}: m = {batch // d}, v = {v}. "
        f"MFU {percent(found.mfu_causal)} of causal pairs; 15 trillion tokens in "
        f"{case_days(found):.0f} days. GB: {held}{'' if found.fits else ', too much'}."
    )
    return picture, summary
