"""What the tests of pictures have in common: reading an SVG, and what holds for every one."""

import re
from collections.abc import Callable
from itertools import combinations
from math import log10
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from weft.draw.figure import measure

SVG = "{http://www.w3.org/2000/svg}"
PHONE = 360  # what a page of 390 pixels leaves
SLACK = 0.02  # positions are rounded


def parse(picture: str) -> Element:
    """The picture, or the first in some HTML."""
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", picture, re.DOTALL)[0])


def told(root: Element) -> str:
    """What it says to somebody who can't see it."""
    return root.find(f"{SVG}desc").text


def words(root: Element) -> list[str]:
    """All that is written in it."""
    return [text.text for text in root.iter(f"{SVG}text")]


def tips(root: Element) -> list[tuple[Element, str]]:
    """What hovering over each mark shows, with the mark."""
    firsts = ((mark, mark[0]) for mark in root.iter() if len(mark) and mark is not root)
    return [(mark, first.text) for mark, first in firsts if first.tag == f"{SVG}title"]


def inside(root: Element, wide_ones: bool = False) -> Element:
    """Nothing is drawn, or written, beyond the picture's edges, and a phone can show it.

    With `wide_ones` a picture of more than 480 pixels may be scrolled there.
    """
    wide, high = map(float, root.get("viewBox").split()[2:])
    groups = {mark: group for group in root.iter() for mark in group}
    for text in root.iter(f"{SVG}text"):
        size = float(text.get("font-size") or groups[text].get("font-size") or 12)
        anchor = text.get("text-anchor") or groups[text].get("text-anchor") or "start"
        room = 0.8 * measure(text.text, size)
        left = float(text.get("x")) - {"start": 0, "middle": room / 2, "end": room}[anchor]
        assert left >= -2 and left + room <= wide + 2, text.text
        assert 0 < float(text.get("y")) <= high, text.text
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(side)) for side in ("x", "y", "width", "height"))
        assert x >= -SLACK and x + w <= wide + SLACK and y >= -SLACK and y + h <= high + SLACK
    for circle in root.iter(f"{SVG}circle"):
        x, y, r = (float(circle.get(side)) for side in ("cx", "cy", "r"))
        assert r <= x <= wide - r and r <= y <= high - r
    least = int(re.search(r"min-width:(\d+)px", root.get("style"))[1])
    assert least <= PHONE or (wide_ones and wide > 480)
    return root


# --- charts ---------------------------------------------------------------------------------------

SIZES = {"": 1, "%": 0.01, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "s": 1}
SIZES |= {"ms": 1e-3, "µs": 1e-6, "ns": 1e-9, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
SIZES |= {
    "B": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "TB/s": 1e12,
}


def quantity_of(label: str) -> float | None:
    """What a number with a unit says, or None for other words.

    >>> quantity_of("1,024 KiB"), quantity_of("10 k"), quantity_of("time")
    (1048576.0, 10000.0, None)
    """
    found = re.fullmatch(r"([\d.,]+) ?([a-zA-Zµ%/]*)", label)
    if not found or found[2] not in SIZES:
        return None
    return float(found[1].replace(",", "")) * SIZES[found[2]]


def axis(root: Element, side: str, log: bool = False) -> Callable[[float], float]:
    """From places to quantities, by the first and the last tick of the "x" or "y" axis."""
    (group,) = (g for g in root.iter(f"{SVG}g") if g.get("class") == f"{side}-ticks")
    shift = 4 if side == "y" else 0  # a label's baseline lies below its tick
    ticks = [(float(t.get(side)) - shift, quantity_of(t.text)) for t in group.iter(f"{SVG}text")]
    (a, low), (b, high) = ticks[0], ticks[-1]
    if log:
        return lambda at: 10 ** (log10(low) + (at - a) * log10(high / low) / (b - a))
    return lambda at: low + (at - a) * (high - low) / (b - a)


def apart(root: Element) -> Element:
    """No text of a picture without moved groups covers another."""
    groups = {mark: group for group in root.iter() for mark in group}
    boxes = []
    for text in root.iter(f"{SVG}text"):
        size = float(text.get("font-size") or groups[text].get("font-size") or 12)
        anchor = text.get("text-anchor") or groups[text].get("text-anchor") or "start"
        wide, x, y = 0.8 * measure(text.text, size), float(text.get("x")), float(text.get("y"))
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        boxes.append((text.text, left, y - 0.7 * size, left + wide, y))
    for (one, *a), (two, *b) in combinations(boxes, 2):
        over = a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
        assert not over, f"{one!r} and {two!r} cover each other"
    return root
