"""What the tests of pictures have in common: reading an SVG, and what holds for every one."""

import re
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
