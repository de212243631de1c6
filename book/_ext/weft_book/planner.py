"""`{planner}`: a form whose fields and answers are weft.explore.planner's.

The answer to the form as it stands is computed when the book is built; in the page the same
function answers under Pyodide when the reader asks.
"""

import html
import json
from typing import Any

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from weft.explore.planner import FIELDS, Field

from . import fresh, states
from .picture import skip

logger = logging.getLogger(__name__)
TARGET = "planner.plan"


class planner_form(nodes.General, nodes.Element):
    """The form and the answer to it; only HTML has any."""


class Planner(SphinxDirective):
    """The directive {planner}."""

    has_content = False

    def run(self):
        fresh.note_use(self.env)
        answer = states.draw(TARGET, *asked({field.name: field.default for field in FIELDS}))
        if answer.startswith('<p class="explore-note">'):
            logger.warning("{planner}: %s", answer, location=self.get_location())
        node = planner_form("", html=answer)
        self.set_source_info(node)
        return [node]


def asked(values: dict[str, Any]) -> tuple[str, list[int]]:
    """Values as `states.draw` takes them: a list of one for each, and the first of each."""
    return json.dumps([[name, [value]] for name, value in values.items()]), [0] * len(values)


def visit(self, node):
    fields = "".join(_field(field) for field in FIELDS)
    self.body.append(
        f'<section class="planner" data-target="{TARGET}" aria-label="Planner">'
        f'<form class="planner-form" hidden>{fields}'
        '<div class="planner-go"><button type="submit">Plan</button>'
        "<progress hidden></progress></div></form>"
        '<p class="explore-status" role="status"></p>'
        f'<div class="planner-answer">{node["html"]}</div></section>'
    )


def depart(self, node):
    pass


def _field(field: Field) -> str:
    """A label with its menu, number or text; a text lies in a fold, with a button for a file."""
    name = f'id="planner-{field.name}" name="{field.name}" data-kind="{field.kind}"'
    label = f'<label for="planner-{field.name}">{html.escape(field.label)}</label>'
    if field.kind == "text":
        return (
            f'<details class="planner-wide"><summary>{html.escape(field.label)}</summary>'
            f'<textarea {name} rows="8" spellcheck="false" aria-label="{html.escape(field.label)}"'
            ' placeholder="{&quot;model_type&quot;: &quot;llama&quot;, …}"></textarea>'
            '<label class="planner-file">or open a file of yours: '
            '<input type="file" accept=".json,application/json"></label></details>'
        )
    if field.kind == "menu":
        options = "".join(
            f'<option value="{html.escape(value)}"{" selected" * (value == field.default)}>'
            f"{html.escape(shown)}</option>"
            for value, shown in field.choices
        )
        return f'<div class="explore-field">{label}<select {name}>{options}</select></div>'
    value = "" if field.default is None else field.default
    hint = f' placeholder="{html.escape(field.hint)}"' if field.hint else ""
    inside = f'<input type="number" inputmode="decimal" min="0" step="any" {name} value="{value}"'
    return f'<div class="explore-field">{label}{inside}{hint}></div>'


def setup(app):
    ignored = dict.fromkeys(("latex", "text", "man", "texinfo"), (skip, None))
    app.add_node(planner_form, html=(visit, depart), **ignored)
    app.add_directive("planner", Planner)
