"""Records as HTML: a table with numbers or dots, and under it all it takes to measure again."""

import html
import json

from weft.bench.record import FORMAT, Record, Result

SPELLED = {"cpu": "{}", "gpu": "{}", "system": "{}", "cores": "{} cores"}


def number(value: float, spec: str = "") -> str:
    """Print a measured number: three significant digits, or as `spec` says.

    >>> number(0.0123456), number(1234.5), number(1234.5, ".1f")
    ('0.0123', '1234', '1234.5')
    """
    if spec:
        return format(value, spec)
    digits = f"{value:.3g}"
    return f"{float(digits):.0f}" if "e+" in digits or abs(value) >= 1000 else digits


def with_unit(result: Result, spec: str = "") -> str:
    printed = number(result.value, spec)
    return printed if result.unit == "1" else f"{printed} {result.unit}"


def table(rows: list[str], columns: list[tuple[Record, str]], spec: str, kind: str) -> str:
    """Rows are results, columns whose code on which chip; the page's script adds the reader's."""
    head = "".join(f'<th scope="col">{_series(record, who)}</th>' for record, who in columns)
    shown = [_find(record, row, who) for row in rows for record, who in columns]
    largest: dict[str, float] = {}
    for result in filter(None, shown):
        largest[result.unit] = max(largest.get(result.unit, 0.0), *result.samples)
    body = []
    for row in rows:
        cells = "".join(_cell(record, row, who, spec, kind, largest) for record, who in columns)
        name = html.escape(row)
        body.append(f'<tr data-result="{name}"><th scope="row">{name}</th>{cells}</tr>')
    dots = "; each dot is one sample, the bar is the median" if kind == "plot" else ""
    return (
        '<div class="measured-scroll" tabindex="0" role="group" aria-label="Measurements">'
        f'<table class="measured-{kind}" data-spec="{html.escape(spec)}"><thead><tr><td></td>{head}'
        f"</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f'<p class="measured-how">{_how_many(shown)}{dots}.</p>'
    )


def _how_many(shown: list[Result | None]) -> str:
    """How many samples stand behind the numbers that are shown."""
    counts = [len(result.samples) for result in shown if result]
    least, most = min(counts), max(counts)
    if most == 1:
        return "Single samples"
    return f"Medians of {least if least == most else f'{least} to {most}'} samples"


def _series(record: Record, who: str) -> str:
    """Whose code on which chip; a dotted name may break after a dot."""
    breakable = html.escape(who).replace(".", ".<wbr>")
    return f'{breakable} <span class="chip">{html.escape(record.chip)}</span>'


def _find(record: Record, name: str, who: str) -> Result | None:
    return next((r for r in record.results if (r.name, r.who) == (name, who)), None)


def _cell(
    record: Record, name: str, who: str, spec: str, kind: str, largest: dict[str, float]
) -> str:
    one = _find(record, name, who)
    if one is None:
        return '<td class="none">–</td>'
    track = _track(one, largest[one.unit]) if kind == "plot" else ""
    data = {"value": repr(one.value), "samples": json.dumps(one.samples), "unit": one.unit}
    attributes = "".join(f' data-{key}="{html.escape(text)}"' for key, text in data.items())
    return (
        f'<td{attributes}><span class="series">{_series(record, who)}</span>{track}'
        f'<span class="value">{html.escape(with_unit(one, spec))}</span></td>'
    )


def _track(one: Result, largest: float) -> str:
    """The samples as dots and the median as a bar, from zero to the largest of this unit."""
    places = [f"{100 * max(0.0, v) / largest if largest > 0 else 0:.2f}%" for v in one.samples]
    dots = "".join(f'<i style="left:{place}"></i>' for place in places)
    bar = f"{100 * max(0.0, one.value) / largest if largest > 0 else 0:.2f}%"
    return f'<span class="track" aria-hidden="true">{dots}<b style="left:{bar}"></b></span>'


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
