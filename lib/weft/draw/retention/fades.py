"""What is left of a write over the distance, for heads with several decays."""

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.linear import DECAYS
from weft.plan.retention import half_life
from weft.plan.units import length, percent

SHOWN = (0, 2, 4, 6)  # heads, of RetNet's decays
FARTHEST = 1 << 13
TICKS = tuple(1 << i for i in range(0, 14, 2))


def fades_svg() -> str:
    """What is left after so many tokens, in four heads; a dot marks each half-life."""
    decays = {h: DECAYS(h + 1)[h] for h in SHOWN}
    told = "; ".join(f"head {h} {half_life(decay):,.0f}" for h, decay in decays.items())
    chart = Chart(
        "What is left of a write",
        f"Curves that fall from all to nothing over a logarithmic axis of tokens, one behind the "
        f"other. Half is left after so many tokens: {told}.",
        Axis("tokens since the write", 1, FARTHEST, length, log=True, ticks=TICKS),
        Axis(
            "left of a write", 0, 1, lambda share: percent(share, 3), ticks=(0, 0.25, 0.5, 0.75, 1)
        ),
        [Key(f"head {h}", line(i)) for i, h in enumerate(decays)],
    )
    for i, (h, decay) in enumerate(decays.items()):
        chart.curve([(n, decay**n) for n in chart.spots(96)], line(i))
        half = half_life(decay)
        chart.point(half, 0.5, f"head {h}: half is left after {half:,.0f} tokens")
    return str(chart.figure)
