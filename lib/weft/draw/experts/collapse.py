"""A router that collapses and two that are kept from it, as a record has it."""

from typing import Any

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.arguments import sizes

FULLEST = "the fullest expert"  # as the record names it


def collapse_svg(record: Any, steps: int = 20, experts: int = 8) -> str:
    """The share of tokens that the fullest expert gets, over training, for each way to balance.

    `record` is experts-balance, whose samples are windows of so many `steps`, in order.
    """
    steps, experts = sizes(steps=steps, experts=experts)
    if not hasattr(record, "results"):
        raise ValueError(f"record is {record!r}, must be a weft.bench.record.Record")
    shares = {one.who: list(one.samples) for one in record.results if one.name == FULLEST}
    if not shares:
        raise ValueError(f"record has no result called {FULLEST!r}")
    looks = {way: line(i, 2.5 if i == 0 else 2) for i, way in enumerate(shares)}
    even = f"an even share, 1/{experts}"
    looks[even] = line(4, 1)
    count = max(map(len, shares.values()))
    told = "; ".join(f"{way} from {row[0]:.0%} to {row[-1]:.0%}" for way, row in shares.items())
    chart = Chart(
        "The fullest expert's share of tokens",
        f"Shares over {count * steps} steps of training. The fullest of {experts} experts: {told}.",
        Axis("steps", 0, count * steps),
        Axis("share of tokens", 0, 1, lambda share: f"{share:.0%}", ticks=(0, 0.25, 0.5, 0.75, 1)),
        [Key(way, look) for way, look in looks.items()],
    )
    for way, row in shares.items():
        spots = [((i + 0.5) * steps, share) for i, share in enumerate(row)]
        chart.curve(spots, looks[way])
        for at, share in spots:
            chart.point(at, share, f"{way}, step {at:g}: {share:.0%}", r=2.5)
    chart.curve([(0, 1 / experts), (count * steps, 1 / experts)], looks[even])
    return str(chart.figure)
