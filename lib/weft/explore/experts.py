"""The slider of the chapter on experts: who is given how many tokens, and what is dropped."""

from weft.draw.experts import TOKENS, loads_svg
from weft.explore.box import explored
from weft.plan.experts import capacity, drop_share, dropped, loads
from weft.plan.units import percent


@explored
def drops(E: int = 16, k: int = 1, factor: float = 1.25, skew: float = 0.5) -> tuple[str, str]:
    """The loads of the experts, and the shares of choices that are dropped and of places empty."""
    picture = loads_svg(E, k, factor, skew)
    counts, most = loads(TOKENS, E, k, skew), capacity(TOKENS, E, factor, k)
    lost = dropped(counts, most)
    empty = E * most - (sum(counts) - lost)
    summary = (
        f"{TOKENS} tokens, {k} each: an expert takes {most}. Dropped: "
        f"{percent(lost / sum(counts))} of the choices; a router that prefers none would drop "
        f"{percent(drop_share(TOKENS, E, factor, k))} on average. Empty: "
        f"{percent(empty / (E * most))} of the places. The busiest expert has "
        f"{max(counts) * E / sum(counts):.1f} times the mean."
    )
    return picture, summary
