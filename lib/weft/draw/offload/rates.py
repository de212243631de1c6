"""What is left of a device's peak over the batch, where the states come over a slow link."""

from collections.abc import Mapping
from types import MappingProxyType

from weft.draw.figure import Figure, Log, Scale, measure, number
from weft.plan.offload import FLOWS, share_left
from weft.plan.shape import ModelShape
from weft.plan.units import amount, percent, quantity

WIDE, HIGH = 480, 320
MOST = 1024  # sequences
DASHES = ("none", "8 3", "2 3", "10 3 2 3", "5 5")
Links = Mapping[str, float]  # name -> bytes per second of one device
NONE: Links = MappingProxyType({})


def rates_svg(
    shape: ModelShape,
    flow: str,
    links: Links,
    peak: float,
    batch: int = 1,
    devices: int = 1,
    whole: Links = NONE,
) -> str:
    """Efficiency over the sequences of one device, a curve for each link, a dot at one batch.

    The states are dealt out over `devices`, so each brings a share of them over a link of its own.
    Over the links of `whole` each takes all of them, as weights come over a network. Activations
    are each device's own.
    """
    if flow not in FLOWS:
        raise ValueError(f"flow is {flow!r}, must be one of {', '.join(FLOWS)}")
    if not 1 <= batch <= MOST:
        raise ValueError(f"batch is {batch!r}, must be from 1 to {MOST}")
    shared = 1 if flow == "activations" else devices
    reach = {name: (rate, rate * shared) for name, rate in links.items()}
    reach |= {name: (rate, rate) for name, rate in whole.items()}
    if not 1 <= len(reach) <= len(DASHES):
        raise ValueError(f"links has {len(reach)} entries, must have 1 to {len(DASHES)}")

    def left(at: float, rate: float) -> float:
        one = share_left(shape, 1, flow, rate, peak)  # share_left takes whole batches
        odds = one / (1 - one) * (1 if flow == "activations" else at)
        return odds / (1 + odds)

    shares = {name: left(batch, all_of_it) for name, (_, all_of_it) in reach.items()}
    x, y = Log(1, MOST, 46, WIDE - 14), Scale(0, 1, HIGH - 44, 24 + 18 * len(reach))
    title = f"Share of the peak that is left if {flow} have to be waited for"
    told = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    description = f"Curves over the sequences of one device. At {batch}: {told}."
    figure = Figure(WIDE, HIGH, title, description, least=WIDE * 0.73, largest=WIDE * 1.25)
    _axes(figure, x, y)
    for i, (name, (rate, all_of_it)) in enumerate(reach.items()):
        look = {"stroke": "currentColor", "stroke_width": 2, "stroke_dasharray": DASHES[i]}
        figure.line(x.start, 10 + 18 * i, x.start + 34, 10 + 18 * i, **look)
        figure.words(x.start + 42, 14 + 18 * i, f"{name}, {amount(rate / 1e9)} GB/s")
        spots = [MOST ** (k / 60) for k in range(61)]
        path = "L".join(f"{number(x(at))} {number(y(left(at, all_of_it)))}" for at in spots)
        figure.mark("path", d=f"M{path}", fill="none", **look)
        tip = f"{name}, {batch} sequences: {percent(shares[name])}"
        figure.mark("circle", cx=x(batch), cy=y(shares[name]), r=4.5, tip=tip)
    return str(figure)


def needed_svg(shape: ModelShape, links: Links, peak: float, batch: int, devices: int = 1) -> str:
    """The bandwidth that each flow needs for a share of the peak, and what links have.

    One curve for each flow, over the share; the links are level lines. `devices` as in rates_svg.
    """
    flows = {flow: share_left(shape, batch, flow, 1.0, peak) for flow in FLOWS}
    odds = {flow: one / (1 - one) for flow, one in flows.items()}  # at one byte per second
    odds["optimizer"] *= devices
    shares = [0.02 * k for k in range(5, 50)]
    x, y = Scale(0, 1, 64, WIDE - 22), Log(1e7, 1e13, HIGH - 44, 70)
    ninety = ", ".join(f"{flow} {quantity(9 / odds[flow], 'B/s')}" for flow in FLOWS)
    figure = Figure(
        WIDE,
        HIGH,
        f"Bandwidth that a device needs for a share of its peak, {batch} sequences each",
        f"Three curves that rise to the right, steeply from 80 percent on. For 90 percent: "
        f"{ninety}.",
        least=WIDE * 0.73,
        largest=WIDE * 1.25,
    )
    for tick in (0.2, 0.4, 0.6, 0.8, 1.0):
        figure.line(x(tick), y.start, x(tick), y.stop, stroke_opacity=0.12)
        label = f"{100 * tick:.0f} %"
        figure.words(x(tick), y.start + 17, label, text_anchor="middle", font_size=11)
    for tick in y.ticks((1,)):
        figure.line(x.start, y(tick), x.stop, y(tick), stroke_opacity=0.12)
        figure.words(
            x.start - 6, y(tick) + 4, quantity(tick, "B/s"), text_anchor="end", font_size=11
        )
    for name, rate in links.items():
        figure.line(x.start, y(rate), x.stop, y(rate), stroke_width=1, stroke_opacity=0.7)
        figure.words(x(0.62), y(rate) - 4, name, font_size=11, text_anchor="end")
    place = 0.0
    for dash, flow in zip(DASHES, FLOWS, strict=False):
        look = {"stroke": "currentColor", "stroke_width": 2, "stroke_dasharray": dash}
        figure.line(place, 10, place + 30, 10, **look)
        figure.words(place + 36, 14, flow)
        place += 36 + measure(flow) + 16
        spots = [(s, s / (1 - s) / odds[flow]) for s in shares]
        inside = [f"{number(x(s))} {number(y(r))}" for s, r in spots if y.low <= r <= y.high]
        figure.mark("path", d=f"M{'L'.join(inside)}", fill="none", **look)
    figure.words(0, y.stop - 16, "bandwidth of one device")
    figure.words((x.start + x.stop) / 2, HIGH - 6, "share of the peak", text_anchor="middle")
    return str(figure)


def _axes(figure: Figure, x: Log, y: Scale) -> None:
    for tick in (0, 0.25, 0.5, 0.75, 1):
        figure.line(x.start, y(tick), x.stop, y(tick), stroke_opacity=0.15)
        label = f"{100 * tick:.0f} %"
        figure.words(x.start - 6, y(tick) + 4, label, text_anchor="end", font_size=11)
    with figure.group(text_anchor="middle", font_size=11):
        for tick in (4**k for k in range(6)):
            figure.line(x(tick), y.start, x(tick), y.start + 4)
            figure.words(x(tick), y.start + 17, str(tick))
    figure.line(x.start, y.start, x.stop, y.start)
    figure.words((x.start + x.stop) / 2, y.start + 36, "sequences", text_anchor="middle")
