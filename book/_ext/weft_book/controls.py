"""The sliders, menus and boxes of `{explore}`, read from one line each.

p: 2..6 = 4 | Stages                                     a slider
c: 0..1 by 0.25 = 0 | Hop latency                        a slider with steps
n: 2..1024 times 2 = 64 | Ranks                          a slider that doubles
size: 4 KiB..4 GiB times 2 = 16 MiB | Bytes              in units that the page shows, too
scale: 2^-8..2^8 times 4 = 1 | Loss scale                shown as a power
schedule: one_f_one_b (1F1B), gpipe = gpipe | Schedule   a menu
lowered: [ ] | Show sends and receives                   a box to tick
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, log2

from weft.plan.units import binary, power

RANGE = re.compile(r"(.+?)\s*\.\.\s*(.+?)(?:\s+(by|times)\s+(\S+))?")
BINARY = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4}
MENU_ENTRY = re.compile(r"(?P<value>[^()]+?)\s*(?:\((?P<text>.*)\))?")


@dataclass(frozen=True)
class Control:
    """One argument of the function and the values that the reader may give it."""

    name: str
    label: str
    kind: str
    values: tuple
    texts: tuple[str, ...]
    default: int


def parse(line: str) -> Control:
    """Read one line; a line that is none of the forms is a ValueError."""
    name, colon, rest = line.partition(":")
    name = name.strip()
    if not colon or not name.isidentifier():
        raise ValueError(f"control `{line}` does not begin with `name:`")
    what, _, label = rest.partition("|")
    what, label = what.strip(), label.strip()
    if not label:
        raise ValueError(f"control `{line}` has no label; write `{line.strip()} | Label`")
    if what in ("[ ]", "[x]"):
        return Control(name, label, "tick", (False, True), ("off", "on"), int(what == "[x]"))
    values, _, default = (part.strip() for part in what.partition("="))
    if ".." in values:
        return _slider(name, label, values, default)
    return _menu(name, label, values, default)


def _slider(name: str, label: str, text: str, default: str) -> Control:
    found = RANGE.fullmatch(text)
    try:
        low, high, step = (_number(part) for part in (found[1], found[2], found[4] or "1"))
        chosen = _number(default) if default else low
    except (TypeError, ValueError):
        raise ValueError(
            f"`{text}` is not a range; write LOW..HIGH, LOW..HIGH by STEP or LOW..HIGH times FACTOR"
        ) from None
    points = [low]
    if found[3] == "times":
        while low > 0 and step > 1 and points[-1] < high:
            points.append(points[-1] * step)
    elif step > 0:
        points = [low + step * i for i in range(int((high - low) / step) + 1)]
    if len(points) < 2 or points[-1] != high:
        raise ValueError(f"`{text}` does not go from low to high in whole steps")
    whole = all(point == int(point) for point in points)
    values = tuple(int(point) if whole else float(point) for point in points)
    at = _position(points, chosen, default)
    return Control(name, label, "slider", values, tuple(map(_told(text), values)), at)


def _number(text: str) -> Fraction:
    """0.25, 2^-8 or 16 MiB, exactly."""
    base, raised, exponent = text.partition("^")
    if raised:
        return Fraction(base) ** int(exponent)
    size, _, unit = text.partition(" ")
    if unit and unit not in BINARY:
        raise ValueError(f"`{unit}` is no unit, must be one of {', '.join(BINARY)}")
    return Fraction(size) * 1024 ** BINARY.get(unit, 0)


def _told(text: str) -> Callable[[float], str]:
    """How the values of a range are shown: as its ends are written."""
    if "2^" in text:
        return lambda value: power(2, round(log2(value)))
    if re.search(r"\d \w*B\b", text):
        return binary
    return lambda value: f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _menu(name: str, label: str, text: str, default: str) -> Control:
    entries = [MENU_ENTRY.fullmatch(part.strip()) for part in re.split(r",(?![^(]*\))", text)]
    if len(entries) < 2 or None in entries:
        raise ValueError(f"`{text}` is neither a range, nor two or more values, nor a tick box")
    spelled = [entry["value"] for entry in entries]
    at = _position(spelled, default, default) if default else 0
    texts = tuple(entry["text"] or entry["value"] for entry in entries)
    return Control(name, label, "menu", tuple(map(_value, spelled)), texts, at)


def _position(values: list, wanted: object, spelled: str) -> int:
    if wanted not in values:
        raise ValueError(f"default `{spelled}` is not one of {', '.join(map(str, values))}")
    return values.index(wanted)


def _value(text: str) -> int | float | str:
    """A number where it is one; the words for those that JSON has not, as nan, are words."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if isfinite(value) else text
    return text
