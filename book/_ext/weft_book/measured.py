"""`{measured}` and `{measured-value}`: what was measured, where, with what, and when.

A page asks for the records of book/measured by name, and says openly which chips have not been
measured yet; a record that is asked for and is not there fails the build.
"""

import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from weft.bench.record import Record

from . import fresh, measured_html
from .picture import FigureDirective, alt_text, caption_of, drawn
from .records import benchmarks, folder_of, one_record, records

logger = logging.getLogger(__name__)


class measured_box(drawn):
    """A table with measurements: it is numbered among the tables."""


class measured_plot(measured_box):
    """Measurements as dots: a figure among the figures."""


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
            printed = measured_html.with_unit(one, spec.strip())
        except (ValueError, TypeError) as error:
            if isinstance(error, TypeError) or "unpack" in str(error):
                error = f"`{self.text}` is not RECORD[@CHIP] RESULT [WHO][:FORMAT]"
            logger.warning("{measured-value}: %s", error, location=self.get_location())
            return [nodes.strong(self.text, f"[{self.text}]")], []
        return [nodes.inline(self.rawtext, printed, classes=["measured-value"])], []


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
        try:
            shown = self.wanted()
            body = self.body(shown)
        except ValueError as error:
            return self.wrong(str(error))
        title = next((record.title for record in shown), self.arguments[0])
        self.options = {"alt": title, "caption": f"{title}."} | self.options
        kind = measured_plot if self.options.get("as") == "plot" else measured_box
        figure = self.figure(kind, html=body, record=self.arguments[0])
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
        spec, kind = self.options.get("format", ""), self.options.get("as", "table")
        columns = [
            measured_html.Column(record, who, tell_chip=len(shown) > 1)
            for record in shown
            for who in self.authors(record)
        ]
        parts = [measured_html.table(self.rows(shown), columns, spec, kind)] if shown else []
        command = next((record.command for record in shown), None)
        command = command or f"weft bench {benchmarks().get(self.arguments[0])}"
        parts += [measured_html.machine(record) for record in shown]
        parts += [measured_html.not_yet(chip, command) for chip in self.listed("not-yet")]
        return "".join(parts) + measured_html.own_record(self.arguments[0])

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


def visit_measured(self, node):
    attributes = {"role": "group", "aria-label": alt_text(node)}
    self.body.append(self.starttag(node, "figure", CLASS="measured", **attributes))
    self.body.append(node["html"])


def depart_measured(self, node):
    self.body.append("</figure>\n")


def setup(app):
    for kind, numbered in ((measured_box, "table"), (measured_plot, "figure")):
        app.add_enumerable_node(kind, numbered, caption_of, html=(visit_measured, depart_measured))
    app.add_role("measured-value", MeasuredValue())
    app.add_directive("measured", Measured)
