"""`{measured}` and `{measured-value}`: what was measured, where, with what, and when.

The records are the files of book/measured. A page asks for them by name, and says openly which
chips have not been measured yet; a record that is asked for and is not there fails the build.
"""

import ast
import html
import json
import shlex
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

import weft
from weft.bench.record import FORMAT, Record, Result, read

from . import fresh
from .picture import FigureDirective, alt_text, caption_of, drawn

SPELLED = {"cpu": "{}", "gpu": "{}", "system": "{}", "cores": "{} cores"}

logger = logging.getLogger(__name__)


class measured_box(drawn):
    """A figure with measurements."""


@cache
def records(folder: Path) -> dict[str, dict[str, Record]]:
    """Every record of a folder: name -> chip -> record."""
    found: dict[str, dict[str, Record]] = {}
    for path in sorted(folder.glob("*.json")):
        record = read(path)
        if path.stem != f"{record.name}.{record.chip}":
            raise ValueError(
                f"{path.name} holds {record.name} on {record.chip};"
                f" its name must be {record.name}.{record.chip}.json"
            )
        found.setdefault(record.name, {})[record.chip] = record
    return found


@cache
def benchmarks() -> dict[str, str]:
    """The names of records that our benchmarks write, as their sources spell them -> topic."""
    found = {}
    for path in sorted(Path(weft.__file__).parent.glob("bench/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.setdefault(node.value, path.stem)
    return found


def folder_of(env) -> Path:
    return Path(env.srcdir, "book", "measured")


def one_record(env, name: str, chip: str | None) -> Record:
    """The record of that name; the chip may be left out where there is only one."""
    chips = records(folder_of(env)).get(name, {})
    if not chips:
        have = ", ".join(sorted(records(folder_of(env)))) or "nothing"
        raise ValueError(f"no record `{name}` in book/measured, which has {have}")
    if chip is None and len(chips) > 1:
        raise ValueError(f"`{name}` was measured on {', '.join(chips)}; say which (`{name}@CHIP`)")
    if chip is not None and chip not in chips:
        raise ValueError(f"`{name}` was measured on {', '.join(chips)}, not on {chip}")
    return chips[chip] if chip else next(iter(chips.values()))


def recorded(env) -> Callable[..., float]:
    """The function `measured` of {calc}."""

    def measured(record: str, result: str, who: str | None = None, chip: str | None = None):
        return one_record(env, record, chip).result(result, who).value

    return measured


class MeasuredValue(SphinxRole):
    """The role {measured-value}: RECORD[@CHIP] RESULT [WHO][:FORMAT]."""

    def run(self):
        fresh.note_use(self.env)
        try:
            words, _, spec = self.text.partition(":")
            record, result, *who = shlex.split(words)
            name, _, chip = record.partition("@")
            found = one_record(self.env, name, chip or None)
            one = found.result(result, *who)
            printed = with_unit(one, spec.strip())
        except (ValueError, TypeError) as error:
            if isinstance(error, TypeError) or "unpack" in str(error):
                error = f"`{self.text}` is not RECORD[@CHIP] RESULT [WHO][:FORMAT]"
            logger.warning("{measured-value}: %s", error, location=self.get_location())
            return [nodes.strong(self.text, f"[{self.text}]")], []
        return [nodes.inline(self.rawtext, printed, classes=["measured-value"])], []


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


class Measured(FigureDirective):
    """The directive {measured}."""

    required_arguments = 1
    option_spec: ClassVar = FigureDirective.option_spec | {
        "chips": directives.unchanged_required,
        "not-yet": directives.unchanged_required,
        "as": lambda text: directives.choice(text, ("table", "plot")),
        "results": directives.unchanged_required,
        "who": directives.unchanged_required,
        "format": directives.unchanged_required,
    }

    def run(self):
        problem = self.missing("caption")
        if problem:
            return self.wrong(problem)
        try:
            shown = self.wanted()
            body = self.body(shown)
        except ValueError as error:
            return self.wrong(str(error))
        self.options.setdefault("alt", next((r.title for r in shown), self.arguments[0]))
        figure = self.figure(measured_box, html=body, record=self.arguments[0])
        figure += self.caption()
        return [figure]

    def listed(self, option: str) -> list[str]:
        return [part.strip() for part in self.options.get(option, "").split(",") if part.strip()]

    def wanted(self) -> list[Record]:
        """The records to show; what is missing and not said to be missing is an error."""
        name = self.arguments[0]
        chips = records(folder_of(self.env)).get(name, {})
        for chip in self.listed("not-yet"):
            if chip in chips:
                raise ValueError(f"`{name}` has been measured on {chip}: take it from :not-yet:")
        if chips:
            asked = self.listed("chips") or list(chips)
            return [one_record(self.env, name, chip) for chip in asked]
        if self.listed("chips") or not self.listed("not-yet"):
            one_record(self.env, name, None)
        if name not in benchmarks():
            raise ValueError(f"no record and no benchmark in weft.bench is called `{name}`")
        return []

    def body(self, shown: list[Record]) -> str:
        spec = self.options.get("format", "")
        columns = [(record, who) for record in shown for who in self.authors(record)]
        rows = self.rows(shown)
        if shown and not (columns and rows):
            raise ValueError(f":results: and :who: leave nothing of `{self.arguments[0]}`")
        kind = self.options.get("as", "table")
        parts = [_table(rows, columns, spec, kind)] if shown else []
        command = next((r.command for r in shown), None)
        command = command or f"weft bench {benchmarks().get(self.arguments[0])}"
        parts += [_machine(record) for record in shown]
        parts += [_not_yet(chip, command) for chip in self.listed("not-yet")]
        return "".join(parts) + _own_record(self.arguments[0])

    def authors(self, record: Record) -> list[str]:
        names = dict.fromkeys(result.who for result in record.results)
        return _choose(names, self.listed("who"))

    def rows(self, shown: Iterable[Record]) -> list[str]:
        names = dict.fromkeys(result.name for record in shown for result in record.results)
        return _choose(names, self.listed("results"))


def _choose(names: Iterable[str], patterns: list[str]) -> list[str]:
    if not patterns:
        return list(names)
    chosen = [n for pattern in patterns for n in names if fnmatchcase(n, pattern)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"`{pattern}` matches none of {', '.join(names)}")
    return list(dict.fromkeys(chosen))


def _table(rows: list[str], columns: list[tuple[Record, str]], spec: str, kind: str) -> str:
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
        f'<p class="measured-how">Medians of {_counts(shown)} samples{dots}.</p>'
    )


def _counts(shown: list[Result | None]) -> str:
    counts = [len(result.samples) for result in shown if result]
    least, most = min(counts), max(counts)
    return f"{least}" if least == most else f"{least} to {most}"


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


def _machine(record: Record) -> str:
    """The line under the table that lets somebody else do it again."""
    machine = [(key, value) for key, value in record.machine.items() if key != "chip"]
    parts = [
        ", ".join(SPELLED.get(key, f"{key} {{}}").format(value) for key, value in machine),
        ", ".join(f"{key} {value}" for key, value in record.versions.items()),
        record.date[:10],
        f"commit {record.commit}",
    ]
    said = " · ".join(html.escape(part) for part in parts)
    return (
        f'<p class="measured-machine"><b>{html.escape(record.chip)}</b> {said} · '
        f"<code>{html.escape(record.command)}</code></p>"
    )


def _not_yet(chip: str, command: str) -> str:
    return (
        f'<p class="measured-machine"><b>{html.escape(chip)}</b> not yet measured · '
        f"<code>{html.escape(command)}</code> measures it</p>"
    )


def _own_record(name: str) -> str:
    kind = f'data-record="{html.escape(name)}" data-format="{FORMAT}"'
    return (
        f'<div class="measured-own" {kind} hidden>'
        '<label class="measured-pick">Add your own record'
        '<input type="file" accept=".json,application/json"></label>'
        "<span>or drop its file here; it stays in your browser.</span>"
        '<p role="status"></p></div>'
    )


def visit_measured(self, node):
    attributes = {"role": "group", "aria-label": alt_text(node)}
    self.body.append(self.starttag(node, "figure", CLASS="measured", **attributes))
    self.body.append(node["html"])


def depart_measured(self, node):
    self.body.append("</figure>\n")


def setup(app):
    app.add_enumerable_node(
        measured_box, "figure", caption_of, html=(visit_measured, depart_measured)
    )
    app.add_role("measured-value", MeasuredValue())
    app.add_directive("measured", Measured)
