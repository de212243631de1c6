"""How much of the memory's bandwidth a scan can use, over its channels."""

from math import ceil

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.arguments import chosen, sizes, whole
from weft.plan.griffin import AHEAD, LATENCY, least_channels, scan_seconds, scan_work
from weft.plan.hardware import CHIPS
from weft.plan.units import length, percent

CHANNELS = tuple(1 << i for i in range(8, 18))
LENGTHS = tuple(1 << i for i in range(9, 18))
CHIPS_SHOWN = ("a100-80", "h100", "h200", "b200")
SHORTEST = 64  # steps of a chunk
SIZE = 4  # fp32
LOADS = 4 / 5  # of what chunks move; what has to be under way for them


def split(chip: str, T: int, channels: int, ahead: int = AHEAD) -> int:
    """So many chunks as keep the memory busy, none of them shorter than SHORTEST.

    >>> split("h200", 8192, 2048), split("h200", 8192, 65536)
    (4, 2)
    """
    T, channels, ahead = sizes(T=T, channels=channels, ahead=ahead)
    wanted = CHIPS[chosen("chip", chip, CHIPS_SHOWN)].bandwidth * LATENCY * LOADS
    return max(2, min(ceil(wanted / (channels * ahead * 2 * SIZE)), T // SHORTEST))


def scan_share(chip: str, T: int, channels: int, ahead: int = AHEAD, chunks: int = 1) -> float:
    """The bytes of a, x and h, once each, in the scan's time, over what the memory can move."""
    at = CHIPS[chosen("chip", chip, CHIPS_SHOWN)]
    took = scan_seconds(at, 1, T, channels, SIZE, chunks, ahead)
    return scan_work(1, T, channels, SIZE).bytes / took / at.bandwidth


def reach_svg(chip: str = "h200", T: int = 8192, channels: int = 2048, ahead: int = AHEAD) -> str:
    """Shares of the bandwidth over the channels: one pass and chunks; the chosen width ringed."""
    T, channels = whole("T", T), whole("channels", channels)
    for name, value, known in (("T", T, LENGTHS), ("channels", channels, CHANNELS)):
        if value not in known:
            raise ValueError(f"{name} is {value}, must be one of {', '.join(map(str, known))}")
    looks = {"one pass": line(0, 2.5), "in chunks": line(1)}

    def share(name: str, width: int) -> float:
        chunks = 1 if name == "one pass" else split(chip, T, width, ahead)
        return scan_share(chip, T, width, ahead, chunks)

    told = "; ".join(f"{name} {percent(share(name, channels), 3)}" for name in looks)
    meet = least_channels(CHIPS[chip], SIZE, ahead)
    chart = Chart(
        f"A scan's share of the bandwidth, {chip}, {length(T)} tokens",
        f"Over channels from {length(CHANNELS[0])} to {length(CHANNELS[-1])}, logarithmic. One "
        f"pass rises to all of it, chunks stay near three fifths; they meet at {meet:,.0f}. "
        f"At {length(channels)} channels: {told}.",
        Axis("sequences × channels", CHANNELS[0], CHANNELS[-1], length, log=True, ticks=CHANNELS),
        Axis("useful bytes, share of the bandwidth", 0, 1, lambda x: percent(x, 3),
             ticks=(0, 0.2, 0.4, 0.6, 0.8, 1)),
        [Key(name, look) for name, look in looks.items()],
    )  # fmt: skip
    for name, look in looks.items():
        chart.curve([(width, share(name, round(width))) for width in chart.spots(72)], look)
        here = share(name, channels)
        chart.point(channels, here, f"{name}, {length(channels)} channels: {percent(here, 3)}")
        chart.ring(channels, here)
    return str(chart.figure)
