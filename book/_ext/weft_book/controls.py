"""The sliders, menus and boxes of `{explore}`, read from one line each.

p: 2..6 = 4 | Stages                                     a slider
c: 0..1 by 0.25 = 0 | Hop latency                        a slider with steps
schedule: one_f_one_b (1F1B), gpipe = gpipe | Schedule   a menu
lowered: [ ] | Show sends and receives                   a box to tick
"""

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import isfinite

RANGE = re.compile(r"(\S+)\s*\.\.\s*(\S+?)(?:\s+by\s+(\S+))?")
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
        low, high, step = (Decimal(part) for part in (found[1], found[2], found[3] or "1"))
    except (TypeError, InvalidOperation):
        raise ValueError(f"`{text}` is not a range; write LOW..HIGH or LOW..HIGH by STEP") from None
    if step <= 0 or high <= low or (high - low) % step:
        raise ValueError(f"`{text}` does not go from low to high in whole steps")
    points = [low + step * i for i in range(int((high - low) / step) + 1)]
    whole = all(point == int(point) for point in (low, step))
    values = tuple(int(point) if whole else float(point) for point in points)
    at = _position(points, Decimal(default), default) if default else 0
    return Control(name, label, "slider", values, tuple(f"{value:g}" for value in values), at)


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
