"""A window's time over that of dense attention, and where it becomes less."""

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.arguments import sizes
from weft.plan.sparse import break_even, pairs, time_share
from weft.plan.units import amount, length

LENGTHS = tuple(1 << i for i in range(9, 18))
SHARES = tuple(2.0**i for i in range(-10, 4, 2))


def even_svg(keys: int = 1024, block: int = 128, ratio: int = 200) -> str:
    """By pairs, by blocks, and by blocks that each take `ratio` percent of a dense one's time."""
    keys, block, ratio = sizes(keys=keys, block=block, ratio=ratio)
    curves = {
        "pairs": lambda T: pairs(T, keys - 1, causal=True) / pairs(T, T, causal=True),
        "blocks": lambda T: time_share(T, block, keys - 1),
        f"blocks at {ratio} %": lambda T: time_share(T, block, keys - 1, ratio / 100),
    }
    looks = {name: line(i, 2.5 if i == 2 else 2) for i, name in enumerate(curves)}
    even = break_even(block, keys - 1, ratio / 100)
    told = "; ".join(
        f"{name} {', '.join(amount(curve(T), 2) for T in LENGTHS)}"
        for name, curve in curves.items()
    )
    chart = Chart(
        f"A causal window of {keys} over dense attention",
        f"Time over that of dense attention for {length(LENGTHS[0])} to {length(LENGTHS[-1])} "
        f"tokens, both logarithmic: {told}. It is 1 at about {length(even)} tokens.",
        Axis("tokens", LENGTHS[0], LENGTHS[-1], length, log=True, ticks=LENGTHS),
        Axis("time over dense attention's", SHARES[0], 8, lambda y: amount(y, 2), log=True,
             ticks=SHARES),
        [Key(name, look) for name, look in looks.items()],
    )  # fmt: skip
    for name, curve in curves.items():
        chart.curve([(T, curve(round(T))) for T in chart.spots(80)], looks[name])
        for T in LENGTHS:
            chart.point(T, curve(T), f"{name}, {length(T)} tokens: {amount(curve(T), 2)}", r=2.5)
    if LENGTHS[0] <= even <= LENGTHS[-1]:
        chart.ring(even, 1)
    return str(chart.figure)
