"""Records as HTML: a table with numbers or dots, and under it all it takes to measure again."""

import html
import json
from dataclasses import dataclass

from weft.bench.record import FORMAT, Measurement, Record
from weft.plan.units import quantity

SPELLED = {"cpu": "{}", "gpu": "{}", "system": "{}", "cores": "{} cores"}


def with_unit(result: Measurement, spec: str = "") -> str:
    """A result as it is printed: in the unit that suits it, or as `spec` formats its value."""
    if not spec:
        return quantity(result.value, result.unit)
    printed = format(result.value, spec)
    return printed if result.unit == "1" else f"{printed} {result.unit}"


@dataclass(frozen=True)
class Column:
    """Whose code on which chip; the chip is told where a table has more than one."""

    record: Record
    who: str
    tell_chip: bool

    def find(self, name: str) -> Measurement | None:
        return next((r for r in self.record.results if (r.name, r.who) == (name, self.who)), None)

    def heading(self) -> str:
        breakable = html.escape(self.who).replace(".", ".<wbr>")
        chip = f' <span class="chip">{html.escape(self.record.chip)}</span>'
        return breakable + (chip if self.tell_chip else "")


def table(rows: list[str], columns: list[Column], spec: str, kind: str) -> str:
    """Rows are results, columns whose code on which chip; the page's script adds the reader's."""
    rows = [row for row in rows if any(column.find(row) for column in columns)]
    columns = [column for column in columns if any(column.find(row) for row in rows)]
    shown = [one for row in rows for column in columns if (one := column.find(row))]
    if not shown:
        raise ValueError("what is chosen by :results: and :who: has not been measured")
    largest: dict[str, float] = {}
    for one in shown:
        largest[one.unit] = max(largest.get(one.unit, 0.0), *one.samples)
    body = "".join(_row(row, columns, spec, largest if kind == "plot" else None) for row in rows)
    head = "".join(f'<th scope="col">{column.heading()}</th>' for column in columns)
    look = "plot" if kind == "plot" else "table"
    dots = "; each dot is one sample, the bar is the median" if kind == "plot" else ""
    return (
        '<div class="measured-scroll" tabindex="0" role="group" aria-label="Measurements">'
        f'<table class="measured-{look}" data-spec="{html.escape(spec)}">'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="measured-how">{_how_many(shown)}{dots}.</p>'
    )


def _how_many(shown: list[Measurement]) -> str:
    """How many samples stand behind the numbers that are shown."""
    counts = [len(result.samples) for result in shown]
    least, most = min(counts), max(counts)
    if most == 1:
        return "Single samples"
    return f"Medians of {least if least == most else f'{least} to {most}'} samples"


def _row(name: str, columns: list[Column], spec: str, largest: dict[str, float] | None) -> str:
    cells = "".join(_cell(column, column.find(name), spec, largest) for column in columns)
    name = html.escape(name)
    return f'<tr data-result="{name}"><th scope="row">{name}</th>{cells}</tr>'


def _cell(
    column: Column, one: Measurement | None, spec: str, largest: dict[str, float] | None
) -> str:
    if one is None:
        return '<td class="none">–</td>'
    track = _track(one, largest[one.unit]) if largest else ""
    data = {"value": repr(one.value), "samples": json.dumps(one.samples), "unit": one.unit}
    attributes = "".join(f' data-{key}="{html.escape(text)}"' for key, text in data.items())
    return (
        f'<td{attributes}><span class="series">{column.heading()}</span>{track}'
        f'<span class="value">{html.escape(with_unit(one, spec))}</span></td>'
    )


def _track(one: Measurement, largest: float) -> str:
    """The samples as dots and the median as a bar, from zero to the largest of this unit."""
    places = [f"{100 * max(0.0, v) / largest if largest > 0 else 0:.2f}%" for v in one.samples]
    dots = "".join(f'<i style="left:{place}"></i>' for place in places)
    bar = f"{100 * max(0.0, one.value) / largest if largest > 0 else 0:.2f}%"
    return f'<span class="track" aria-hidden="true">{dots}<b style="left:{bar}"></b></span>'


def with_pictures(drawn: list[tuple[str, str]], table: str) -> str:
    """Pictures side by side where there is room, their chip above where there are several."""
    chips = {chip for chip, _ in drawn}
    views = []
    for chip, picture in drawn:
        told = f'<span class="chip">{html.escape(chip)}</span>' if len(chips) > 1 else ""
        views.append(f'<div class="weft-view weft-scroll" tabindex="0">{told}{picture}</div>')
    return (
        f'<div class="measured-pictures">{"".join(views)}</div>'
        f'<details class="measured-numbers"><summary>The numbers</summary>{table}</details>'
    )


def machine(record: Record) -> str:
    """The line under the table that lets somebody else do it again."""
    facts = [(key, value) for key, value in record.machine.items() if key != "chip"]
    parts = [
        ", ".join(SPELLED.get(key, f"{key} {{}}").format(value) for key, value in facts),
        ", ".join(f"{key} {value}" for key, value in record.versions.items()),
        record.date[:10],
        f"commit {record.commit}",
    ]
    said = " · ".join(html.escape(part) for part in parts)
    return (
        f'<p class="measured-machine"><b>{html.escape(record.chip)}</b> {said} · '
        f"<code>{html.escape(record.command)}</code></p>"
    )


def not_yet(chip: str, command: str) -> str:
    return (
        f'<p class="measured-machine"><b>{html.escape(chip)}</b> not yet measured · '
        f"<code>{html.escape(command)}</code> measures it</p>"
    )


def own_record(name: str) -> str:
    kind = f'data-record="{html.escape(name)}" data-format="{FORMAT}"'
    return (
        f'<div class="measured-own" {kind} hidden>'
        '<label class="measured-pick">Add your own record'
        '<input type="file" accept=".json,application/json"></label>'
        "<span>or drop its file here; it stays in your browser.</span>"
        '<p role="status"></p></div>'
    )
