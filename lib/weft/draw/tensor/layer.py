"""A layer on 1 to 64 ranks: how long it computes and sends, and what it keeps for backward."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure, dashed
from weft.draw.tensor.states import box
from weft.draw.tensor.wall import REACHED, TOKENS
from weft.plan.arguments import chosen, sizes
from weft.plan.hardware import CHIPS, LINKS
from weft.plan.shape import ModelShape
from weft.plan.tensor import kept, layer_time
from weft.plan.units import moment, quantity

WIDE, LEFT, RIGHT, ROW, HIGH = 350, 44, 66, 21, 15
DEGREES = (1, 2, 4, 8, 16, 32, 64)
COMPUTING, SENDING = svg.FORWARD.paint(), svg.TRAVEL.paint()
KEPT = svg.WEIGHT_GRADIENT.paint()
VARIANTS = {  # of what is kept: sequence parallel, and gathered again
    "1 GPU": (False, False),
    "tensor": (False, False),
    "+ sequence": (True, False),
    "+ gather again": (True, True),
}


def dense(width: int) -> ModelShape:
    """A layer of GPT's with heads of 128 and 4,096 tokens; the vocabulary does not count."""
    return ModelShape(1, width, width // 128, 1, TOKENS)


def bytes_kept(width: int, t: int) -> dict[str, int]:
    """What each variant keeps of one sequence, with FlashAttention."""
    return {
        name: kept(dense(width), 1, 1 if name == "1 GPU" else t, along, attention="flash",
                   regather=again)
        for name, (along, again) in VARIANTS.items()
    }  # fmt: skip


def layer_svg(t: int = 8, width: int = 8192, chip: str = "h100", link: str = "nvlink4") -> str:
    """Bars of one layer's forward and backward for each t, and of what t ranks keep for it.

    4,096 tokens, bf16, 60 % of the peak, nothing overlapped. Bold: the chosen t.
    """
    t, width = sizes(t=t, width=width)
    if t not in DEGREES:
        raise ValueError(f"t is {t}, must be one of {', '.join(map(str, DEGREES))}")
    if width % 128 or width // 128 < max(DEGREES) // 4:
        raise ValueError(f"width is {width}, must be a multiple of 128, at least 2,048")
    device, wire = chosen_of(chip, link)
    able = [n for n in DEGREES if n <= width // 128]
    times = {n: layer_time(dense(width), 1, n, device, wire, share=REACHED) for n in able}
    most = max(time.seconds for time in times.values())
    stored = bytes_kept(width, min(t, able[-1]))
    lower = 36 + ROW * len(able) + 26
    figure = Figure.small(
        WIDE, lower + ROW * len(stored) + 10, f"A layer of width {width:,} over t", _told(times),
        largest=1.5,
    )  # fmt: skip
    svg.legend(figure, [("computing", COMPUTING | OUTLINE), ("sending", SENDING | OUTLINE),
                        ("kept", KEPT | OUTLINE)])  # fmt: skip
    x = svg.Scale(0, most, LEFT, WIDE - RIGHT)
    for i, (n, time) in enumerate(times.items()):
        y = 28 + ROW * i
        bold = {"font_weight": "bold"} if n == t else {}
        figure.words(0, y + 12, f"t = {n}", font_size=11, **bold)
        split = x(time.computing)
        said = f"t = {n}: computing {moment(time.computing, 's', most)}"
        box(figure, LEFT, y, split - LEFT, HIGH, COMPUTING, said)
        if time.sending:
            said = f"t = {n}: sending {moment(time.sending, 's', most)}"
            box(figure, split, y, x(time.seconds) - split, HIGH, SENDING, said)
        shown = moment(time.seconds, "s", most)
        figure.words(x(time.seconds) + 5, y + 12, shown, font_size=11, **bold)
    figure.words(0, lower - 8, f"kept of 4,096 tokens at t = {min(t, able[-1])}", font_size=11)
    left = 88
    x = svg.Scale(0, max(stored.values()), left, WIDE - RIGHT)
    for i, (name, nbytes) in enumerate(stored.items()):
        y = lower + ROW * i
        figure.words(0, y + 12, name, font_size=11)
        shown = quantity(nbytes, "B")
        box(figure, left, y, x(nbytes) - left, HIGH, KEPT, f"{name}: {shown}")
        figure.words(x(nbytes) + 5, y + 12, shown, font_size=11)
    figure.mark("path", d=f"M0 {lower - 22}H{WIDE}", **dashed("none", 0.25))
    return str(figure)


def chosen_of(chip: str, link: str):
    """The chip and the link of these names."""
    chosen("chip", chip, CHIPS)
    chosen("link", link, LINKS)
    return CHIPS[chip], LINKS[link]


def _told(times) -> str:
    told = ", ".join(
        f"t = {n}: computing {time.computing * 1e3:.2f} ms and sending {time.sending * 1e3:.2f}"
        for n, time in times.items()
    )
    return f"Bars for each t. {told}. Below, what is kept for backward in four variants."
