"""A hue means the same in every picture of the book: what the legends of its pages say."""

import itertools
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from book_site import pages, site  # noqa: F401

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = re.compile(r"<svg xmlns='http://www.w3.org/2000/svg' class='weft-figure'.*?</svg>", re.S)
HUES = {  # of what is drawn in more than one chapter
    "forward": "weft-f",
    "F": "weft-f",
    "F forward": "weft-f",
    "backward": "weft-b",
    "B": "weft-b",
    "B input gradient": "weft-b",
    "input gradient": "weft-b",
    "W": "weft-w",
    "W weight gradient": "weft-w",
    "weight gradient": "weft-w",
    "computes": "weft-f",
    "computing": "weft-f",
    "copy": "weft-link",
    "copies": "weft-link",
    "sending": "weft-link",
    "weights": "weft-weights",
    "gradients": "weft-gradients",
    "activations": "weft-activations",
    "temporary": "weft-temporary",
    "idle": "none",
    "waits": "none",
    "bubble": "none",
}


class Key(NamedTuple):
    """A row of a legend: the page, the hue's name or colour, all of its look, and its meaning."""

    page: str
    hue: str
    look: str
    meaning: str


@pytest.fixture(scope="module")
def legends(site):  # noqa: F811
    """The legends of the pages' pictures, as lists of Key."""
    found = []
    for name in pages(site):
        for picture in PICTURE.findall((site / name).read_text(encoding="utf-8")):
            found.append(list(legend(Path(name).stem, picture)))
    return found


def legend(page, picture):
    """The swatches of a picture and the words beside each; draw.figure.legend writes them."""
    marks = list(ElementTree.fromstring(picture).iter())
    for swatch, words in itertools.pairwise(marks):
        if swatch.tag != SVG + "rect" or words.tag != SVG + "text" or swatch.get("width") != "12":
            continue
        if abs(float(words.get("x", 0)) - float(swatch.get("x", 0)) - 17) > 0.1:
            continue
        look = {name: swatch.get(name) for name in set(swatch.keys()) - {"x", "y"}}
        named = re.findall(r"--(weft-[\w-]+)", swatch.get("style", ""))
        hue = named[0] if named else swatch.get("fill", "none")
        yield Key(page, hue, str(sorted(look.items())), "".join(words.itertext()))


def test_what_many_chapters_draw_has_one_hue(legends):
    keys = [key for one in legends for key in one if key.meaning in HUES]
    assert len({key.page for key in keys}) > 8 and {key.meaning for key in keys} > {"F", "weights"}
    assert [key for key in keys if key.hue != HUES[key.meaning]] == []


def test_no_legend_gives_one_look_two_meanings(legends):
    assert sum(map(bool, legends)) > 50
    for one in legends:
        meanings = defaultdict(set)
        for key in one:
            meanings[key.look].add(key.meaning)
        assert all(len(of) == 1 for of in meanings.values()), meanings
