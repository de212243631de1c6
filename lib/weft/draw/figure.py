"""A small vocabulary for drawings: one figure, its marks, its scales, and the book's colours.

Every figure of the book is made of these, so they look alike, follow the page's light or dark
colour, and say in words what they show. Strings only, and the same input gives the same bytes.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape, unescape
from math import floor, log10
from zlib import crc32

from weft.plan.units import amount, moment, prefixed

INK = "#111"  # on coloured cells, in light and in dark pages
OUTLINE = {"stroke": INK, "stroke_opacity": 0.5, "stroke_width": 0.75}  # of cells and bars
FONT = "system-ui,Segoe UI,Roboto,Helvetica Neue,Arial,sans-serif"
SIZE = 12  # of text, in units of the figure
LEGIBLE = 0.84  # how far a page may scale a figure down before it has to scroll it


@dataclass(frozen=True)
class Colour:
    """A CSS variable of the page and the colour that stands in for it where there is no page.

    >>> Colour("weft-f", "#56B4E9").paint()
    {'fill': '#56B4E9', 'style': 'fill:var(--weft-f,#56B4E9)'}
    """

    variable: str
    hexadecimal: str

    def paint(self, white: float = 0.0) -> dict[str, str]:
        """Attributes that fill with this colour, mixed with a share of white.

        A program that does not know CSS variables or mixtures takes the plain `fill`.
        """
        live = f"var(--{self.variable},{self.hexadecimal})"
        if white:
            live = f"color-mix(in srgb,{live} {number(100 * (1 - white))}%,#fff)"
        return {"fill": self._mixed(white), "style": f"fill:{live}"}

    def stroke(self, width: float) -> dict[str, str | float]:
        """Attributes of a line in this colour."""
        live = f"stroke:var(--{self.variable},{self.hexadecimal})"
        return {"stroke": self.hexadecimal, "stroke_width": width, "style": live}

    def _mixed(self, white: float) -> str:
        channels = (int(self.hexadecimal[i : i + 2], 16) for i in (1, 3, 5))
        mixed = (round(c + (255 - c) * white) for c in channels)
        return "#" + "".join(f"{c:02X}" for c in mixed)


FORWARD = Colour("weft-f", "#56B4E9")
INPUT_GRADIENT = Colour("weft-b", "#E69F00")
WEIGHT_GRADIENT = Colour("weft-w", "#009E73")
WAITING = Colour("weft-wait", "#CC79A7")
TRAVEL = Colour("weft-link", "#F0E442")
STUCK = Colour("weft-stuck", "#D55E00")


def dashed(dashes: str, opacity: float) -> dict[str, str | float]:
    """The look of an outline with nothing in it."""
    return {
        "fill": "none", "stroke": "currentColor", "stroke_opacity": opacity,
        "stroke_dasharray": dashes,
    }  # fmt: skip


def number(value: float) -> str:
    """A coordinate in as few characters as a hundredth of a unit takes.

    >>> number(3.0), number(0.504), number(-0.001)
    ('3', '.5', '0')
    """
    short = f"{value:.2f}".rstrip("0").rstrip(".")
    if short.startswith("0."):
        return short[1:]
    return "0" if short == "-0" else short


def measure(string: str, size: float = SIZE) -> float:
    """About how wide a string is, a little generously: there is no font to ask."""
    narrow = sum(character in " .,:;'|il()[]" for character in string)
    return size * (0.63 * len(string) - 0.25 * narrow)


@dataclass(frozen=True)
class Scale:
    """A straight map from quantities [low, high] to coordinates [start, stop].

    >>> x = Scale(0, 10, 100, 200)
    >>> x(2.5), x.ticks(most=5)
    (125.0, (0, 2, 4, 6, 8, 10))
    """

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        reach = self.high - self.low
        share = (value - self.low) / reach if reach else 0.0
        return self.start + share * (self.stop - self.start)

    def at(self, share: float) -> float:
        """The quantity so far along: 0 is `low`, 1 is `high`."""
        return self.low + share * (self.high - self.low)

    def ticks(self, most: int) -> tuple[float, ...]:
        """Round values, 1, 2 or 5 times a power of ten apart, at most about `most` of them."""
        reach = self.high - self.low
        if reach <= 0:
            return (self.low,)
        rough = reach / max(most, 1)
        power = 10 ** floor(log10(rough))
        step = next(k * power for k in (1, 2, 5, 10) if k * power >= rough * (1 - 1e-9))
        first = -floor(-self.low / step)
        count = floor((self.high - first * step) / step + 1e-9)
        return tuple(_round(step * (first + i), step) for i in range(count + 1))


@dataclass(frozen=True)
class Log:
    """A map like Scale's that gives equal ratios equal distances.

    >>> x = Log(1, 100, 0, 200)
    >>> x(10), x.ticks((1, 2, 5))
    (100.0, (1, 2, 5, 10, 20, 50, 100))
    """

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        share = log10(value / self.low) / log10(self.high / self.low)
        return self.start + share * (self.stop - self.start)

    def at(self, share: float) -> float:
        """The quantity so far along: 0 is `low`, 1 is `high`."""
        return self.low * (self.high / self.low) ** share

    def ticks(self, digits: Sequence[int]) -> tuple[float, ...]:
        """Every power of ten times each of `digits`, within [low, high]."""
        powers = range(floor(log10(self.low)), floor(log10(self.high)) + 1)
        values = (_round(digit * 10.0**power, 10.0**power) for power in powers for digit in digits)
        return tuple(
            v for v in values if self.low <= v * (1 + 1e-9) and v <= self.high * (1 + 1e-9)
        )


def _round(value: float, step: float) -> float:
    """A multiple of a step without the dust of the multiplication."""
    return round(value, max(0, 2 - floor(log10(step)))) if step < 1 else round(value)


# What an image of its own needs and a part of a page does not: a background, because it cannot
# know what it will stand on, and its whole width, however narrow that is.
CARD = (
    "<style>:root{min-width:0!important;color:#111;background:#fff}"
    "@media(prefers-color-scheme:dark){:root{color:#e6e6e6;background:#181818}}</style>"
)
IMAGE = re.compile(r"<img class='weft-image'[^>]* src='data:image/svg\+xml;base64,([^']*)'>")
UNPACK = (  # in a page: puts the SVG, without CARD, in the place of the image before the script
    "<script>(i=>{if(i)i.outerHTML=new TextDecoder().decode(Uint8Array.from(atob("
    "i.src.split(',')[1]),c=>c.charCodeAt())).replace(/<style>.*<\\/style>/,'')})"
    "(document.currentScript?.previousSibling)</script>"
)


class Drawing(str):
    """SVG that a notebook shows as the picture that it is.

    A notebook that JupyterLab does not trust, as it trusts none that came from elsewhere, loses
    its SVG and its scripts but keeps its images, so the picture is one. Where scripts run, one
    unpacks it: then marks show their tips, and the colours are the page's.

    >>> drawing = str(Figure(40, 20, "A box", "One box."))
    >>> unpacked(drawing._repr_mimebundle_()["text/html"]) == drawing
    True
    """

    def _repr_mimebundle_(self, **_) -> dict[str, str]:
        """What IPython asks for: the image, and in words what it shows."""
        told = ": ".join(re.findall(r"<(?:title|desc) id=[^>]*>(.*?)</", self)[:2])
        alternative = told.replace("'", "&#39;")
        width = re.search(r"max-width:(\d+)px", self)[1]
        data = b64encode(self.replace("</svg>", f"{CARD}</svg>").encode()).decode()
        image = (
            f"<img class='weft-image' width='{width}' alt='{alternative}' "
            f"src='data:image/svg+xml;base64,{data}'>"
        )
        return {"text/html": image + UNPACK, "text/plain": unescape(told)}


def unpacked(page: str) -> str:
    """HTML with each image that a Drawing has made as the SVG itself again."""
    page = page.replace(UNPACK, "")
    return IMAGE.sub(lambda image: b64decode(image[1]).decode().replace(CARD, ""), page)


class Figure:
    """A drawing in the making: marks in the order in which they are painted.

    `title` says what it is, `description` what somebody would see in it. A page may show it
    between `least` and `largest` pixels wide, and scrolls it where there is less room. Marks are
    added by tag; attributes are numbers or strings, with "_" for "-".

    >>> figure = Figure(40, 20, "A box", "One box.")
    >>> figure.mark("rect", x=1, y=2.5, width=10, height=10, tip="ten wide")
    >>> "<rect x='1' y='2.5' width='10' height='10'><title>ten wide</title></rect>" in str(figure)
    True
    """

    def __init__(
        self,
        width: float,
        height: float,
        title: str,
        description: str,
        least: float | None = None,
        largest: float | None = None,
    ):
        self.width, self.height = width, height
        self.least = width * LEGIBLE if least is None else least
        self.largest = width if largest is None else largest
        self.title, self.description = title, description
        self._parts: list[str] = []

    @classmethod
    def small(
        cls, width: float, height: float, title: str, description: str, largest: float = 1.25
    ) -> "Figure":
        """A figure for phones, too: a page may scale it down to 0.72, and up to `largest`."""
        return cls(width, height, title, description, 0.72 * width, largest * width)

    def mark(self, tag: str, content: str = "", tip: str = "", **attributes) -> None:
        """One element; `content` is its text, `tip` is what hovering over it shows."""
        inside = escape(content, quote=False)
        if tip:
            inside = f"<title>{escape(tip, quote=False)}</title>{inside}"
        opening = f"<{tag}{_attributes(attributes)}"
        self._parts.append(f"{opening}>{inside}</{tag}>" if inside else f"{opening}/>")

    @contextmanager
    def group(self, **attributes) -> Iterator[None]:
        """What is drawn inside inherits these attributes; nothing is left of an empty group."""
        self._parts.append(f"<g{_attributes(attributes)}>")
        opened = len(self._parts)
        yield
        if len(self._parts) == opened:
            self._parts.pop()
        else:
            self._parts.append("</g>")

    def boxes(self, boxes: Sequence[tuple[float, float, float, float]], **attributes) -> None:
        """Many rectangles (x, y, width, height) of one look in one path, which is short."""
        if boxes:
            outline = "".join(
                f"M{number(x)} {number(y)}h{number(w)}v{number(h)}h{number(-w)}z"
                for x, y, w, h in boxes
            )
            self.mark("path", d=outline, **attributes)

    def words(self, x: float, y: float, string: str, **attributes) -> None:
        """Text with its baseline at y."""
        self.mark("text", string, x=x, y=y, **attributes)

    def line(self, x1: float, y1: float, x2: float, y2: float, **attributes) -> None:
        """A straight line in the page's text colour."""
        attributes = {"stroke": "currentColor", **attributes}
        self.mark("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)

    def __str__(self) -> Drawing:
        body = "".join(self._parts)
        told = escape(self.title, quote=False), escape(self.description, quote=False)
        key = f"weft-{crc32('|'.join((*told, body)).encode()):08x}"
        width, height = number(self.width), number(self.height)
        least, largest = floor(self.least), floor(self.largest)
        return Drawing(
            f"<svg xmlns='http://www.w3.org/2000/svg' class='weft-figure' role='img' "
            f"aria-labelledby='{key}-title {key}-desc' viewBox='0 0 {width} {height}' "
            f"style='width:100%;height:auto;max-width:{largest}px;min-width:{least}px' "
            f"font-family='{FONT}' font-size='{SIZE}' fill='currentColor'>"
            f"<title id='{key}-title'>{told[0]}</title><desc id='{key}-desc'>{told[1]}</desc>"
            f"{body}</svg>"
        )


def _attributes(attributes: dict) -> str:
    return "".join(
        f" {name.replace('_', '-')}='{escape(value) if isinstance(value, str) else number(value)}'"
        for name, value in attributes.items()
    )


def time_lines(figure: Figure, x: Scale, top: float, bottom: float, end: float, unit: str) -> None:
    """Faint upright lines at the round times that `time_labels` names."""
    with figure.group(stroke="currentColor", stroke_opacity=0.15):
        for place, _ in _times(x, end, unit):
            figure.mark("path", d=f"M{number(place)} {number(top)}V{number(bottom)}")


def time_labels(figure: Figure, x: Scale, y: float, end: float, unit: str) -> None:
    """Round times on the baseline y, and `end`, with its unit, in bold."""
    last = moment(end, unit, end)
    figure.words(0, y, "time", font_size=11)
    with figure.group(text_anchor="middle", font_size=11):
        for place, label in _times(x, end, unit):
            if abs(place - x(end)) > (measure(last, 11) + measure(label, 11)) / 2 + 6:
                figure.words(place, y, label)
        figure.words(x(end), y, last, font_weight="bold")


def time_axis(figure: Figure, x: Scale, top: float, bottom: float, end: float, unit: str) -> None:
    """Lines from `top` to `bottom` and their labels below."""
    time_lines(figure, x, top, bottom + 4, end, unit)
    time_labels(figure, x, bottom + 16, end, unit)


def _times(x: Scale, end: float, unit: str) -> list[tuple[float, str]]:
    """Where on the axis round times lie, and how they read in the prefix that suits `end`."""
    size, _ = prefixed(end, unit)
    shown = Scale(x.low / size, x.high / size, x.start, x.stop)
    return [(shown(tick), amount(tick)) for tick in shown.ticks(int((x.stop - x.start) // 56))]


Key = tuple[str, dict]  # an entry of a legend: what a swatch means, and the swatch's attributes


def legend(figure: Figure, keys: Sequence[Key], y: float = 14) -> float:
    """Swatches and their meanings in one line on the baseline y. Where the line ends."""
    x = 0.0
    for (meaning, look), width in zip(keys, _key_widths(keys), strict=True):
        high = look.get("height", 12)
        figure.mark("rect", **{"x": x, "y": y - 4 - high / 2, "width": 12, "height": high, **look})
        figure.words(x + 17, y, meaning)
        x += width
    return x


def legend_width(keys: Sequence[Key]) -> float:
    """The room that a legend takes."""
    return sum(_key_widths(keys))


def _key_widths(keys: Sequence[Key]) -> list[float]:
    return [17 + round(measure(meaning)) + 14 for meaning, _ in keys]
