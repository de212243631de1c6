"""How much of a step devices compute, over its tokens, where the optimizer is on the host."""

from collections.abc import Mapping

from weft.draw.chart import DASHES, Axis, Chart, Key, line
from weft.plan.arguments import chosen, positive
from weft.plan.offload import DELAYS, HOST_REACHES, Host, computing_share, tokens_for
from weft.plan.units import amount, percent

LEAST, MOST = 2**11, 2**23  # tokens
TICKS = tuple(4**k * 1024 for k in range(1, 7))
GOAL = 0.8


def computing_svg(
    hosts: Mapping[str, Host],
    flops: float,
    tokens: int = 2**16,
    way: str = "after",
    reached: float = HOST_REACHES,
) -> str:
    """A curve for each host, and a dot on it at so many tokens in a step of all its devices.

    Each device computes at `flops`. The level line is four fifths.
    """
    if not LEAST <= tokens <= MOST:
        raise ValueError(f"tokens is {tokens!r}, must be from {LEAST} to {MOST}")
    if not 1 <= len(hosts) <= len(DASHES):
        raise ValueError(f"hosts has {len(hosts)} entries, must have 1 to {len(DASHES)}")
    (flops,), way = positive(flops=flops), chosen("way", way, DELAYS)
    shares = {name: computing_share(tokens, h, flops, way, reached) for name, h in hosts.items()}
    needs = {name: tokens_for(GOAL, h, flops, way, reached) for name, h in hosts.items()}
    told = ", ".join(
        f"{name} {percent(shares[name])}, and {percent(GOAL)} from {thousands(needs[name])} tokens"
        for name in hosts
    )
    looks = {name: line(i) for i, name in enumerate(hosts)}
    chart = Chart(
        "Share of a step in which devices compute",
        f"Curves that rise over the tokens in a step. At {thousands(tokens)}: {told}.",
        Axis("tokens in a step, of all devices", LEAST, MOST, thousands, log=True, ticks=TICKS),
        Axis("computing", 0, 1, lambda share: percent(share, 3), ticks=(0, 0.2, 0.4, 0.6, 0.8, 1)),
        [Key(name, looks[name]) for name in hosts],
    )
    level = chart.y(GOAL)
    chart.figure.line(chart.left, level, chart.right, level, stroke_opacity=0.6)
    for name, host in hosts.items():
        spots = [(at, computing_share(at, host, flops, way, reached)) for at in chart.spots()]
        chart.curve(spots, looks[name])
        chart.point(
            tokens, shares[name], f"{name}, {thousands(tokens)}: {percent(shares[name])}", r=4.5
        )
    return str(chart.figure)


def thousands(tokens: float) -> str:
    """Tokens as they are counted in steps: 8K and 2M are powers of two."""
    for unit, size in (("M", 2**20), ("K", 2**10)):
        if tokens >= size:
            return f"{amount(tokens / size)}{unit}"
    return amount(tokens)
