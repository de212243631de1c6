"""The slider of the chapter on Griffin: a scan in one pass or in chunks, by channels."""

from weft.draw.griffin import reach_svg, scan_share, split
from weft.explore.box import explored
from weft.plan.arguments import whole
from weft.plan.griffin import AHEAD, LATENCY, least_channels, scan_seconds
from weft.plan.hardware import CHIPS
from weft.plan.units import percent, quantity


@explored
def scans(
    chip: str = "h200", T: int = 8192, channels: int = 1024, ahead: int = AHEAD
) -> tuple[str, str]:
    """The share of the bandwidth that each reaches, their times, and where they meet."""
    picture = reach_svg(chip, T, channels, ahead)
    T, channels, ahead = whole("T", T), whole("channels", channels), whole("ahead", ahead)
    at, chunks = CHIPS[chip], split(chip, T, channels, ahead)
    took = [scan_seconds(at, 1, T, channels, chunks=n, ahead=ahead) for n in (1, chunks)]
    shares = [scan_share(chip, T, channels, ahead, n) for n in (1, chunks)]
    under_way = channels * min(ahead, T) * 8
    better = "one pass" if took[0] <= took[1] else f"{chunks} chunks"
    summary = (
        f"One pass has {quantity(under_way, 'B')} on their way where the memory asks for "
        f"{quantity(at.bandwidth * LATENCY, 'B')}: {quantity(took[0], 's')}, "
        f"{percent(shares[0], 3)} of the bandwidth. In {chunks} chunks, with a and u read twice, "
        f"{quantity(took[1], 's')}, {percent(shares[1], 3)}. Faster: {better}. Loading {ahead} "
        f"ahead, they meet at {least_channels(at, ahead=ahead):,.0f} channels."
    )
    return picture, summary
