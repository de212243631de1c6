"""Computing falls with t, sending does not: where the two curves cross is the wall."""

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.arguments import sizes
from weft.plan.hardware import CHIPS, LINKS
from weft.plan.tensor import wall
from weft.plan.units import moment

REACHED = 0.6  # of the peak rate, which matmuls of this size reach
TOKENS = 4096
SHOWN = {"nvlink4": "NVLink", "ib-ndr": "one NDR port each"}


def wall_svg(width: int = 8192, chip: str = "h100") -> str:
    """A dense layer's forward over t: its matmuls, and its two all-reduces on two links.

    4,096 tokens, bf16, 60 % of the chip's peak. Rings mark where sending takes as long.
    """
    (width,) = sizes(width=width)
    device = CHIPS[chip]
    flops = 24 * TOKENS * width**2
    nbytes = 2 * TOKENS * width

    def computing(t: float) -> float:
        return flops / t / (REACHED * device.rate("bf16"))

    def sending(link: str, t: float) -> float:
        return 2 * 2 * (t - 1) / t * nbytes / LINKS[link].bandwidth  # two all-reduces

    walls = {link: wall(width, device, LINKS[link], share=REACHED) for link in SHOWN}
    told = ", ".join(f"{SHOWN[link]} at {at:.1f}" for link, at in walls.items())
    most = computing(1)
    x = Axis("tensor parallel ranks t", 1, 64, lambda t: f"{t:.0f}", True, [2**i for i in range(7)])
    y = Axis("a layer's forward", most / 100, most * 1.3, lambda s: moment(s, "s", most), True)
    keys = [Key("computing", line(0, 2.5))]
    keys += [Key(f"sending, {name}", line(i + 1)) for i, name in enumerate(SHOWN.values())]
    chart = Chart(
        f"Computing and sending of a layer of width {width:,} on {chip}",
        f"A falling curve of computing and two of sending that rise and level off. They cross: "
        f"{told}.",
        x, y, keys,
    )  # fmt: skip
    chart.curve(((t, computing(t)) for t in chart.spots()), line(0, 2.5))
    for i, link in enumerate(SHOWN):
        points = [(t, sending(link, t)) for t in chart.spots(200) if t > 1]
        chart.curve(points, line(i + 1))
        at = walls[link]
        chart.ring(at, computing(at))
        chart.point(at, computing(at), f"{SHOWN[link]}: sending is longer beyond t = {at:.1f}")
    return str(chart.figure)
