"""`{guess}` and `{guess-answer}`: the reader commits to a number, and later sees how good it was.

The page keeps the guess in the reader's browser. The answer is computed when the book is built
and stands only in the answer's box, folded, so that nobody reads it by accident; without
JavaScript the fold is all there is.
"""

import html
import math
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from . import fresh
from .calc import WrongExpression, evaluate
from .records import recorded

logger = logging.getLogger(__name__)


class guess_box(nodes.General, nodes.Element):
    """The question and the place for the reader's number."""


class guess_answer(nodes.General, nodes.Element):
    """The answer, folded, and the comparison."""


class _Box(SphinxDirective):
    required_arguments = 1
    has_content = True

    def wrong(self, message: str) -> list[nodes.Node]:
        logger.warning("{%s}: %s", self.name, message, location=self.get_location())
        return [nodes.paragraph("", "", nodes.strong("", f"[{self.name}: {message}]"))]

    def box(self, kind: type[nodes.Element], **attributes) -> nodes.Element:
        name = self.arguments[0]
        identity = nodes.make_id(f"{self.name}-{name}")
        box = kind("", guess=name, ids=[identity], **attributes)
        self.set_source_info(box)
        self.state.nested_parse(self.content, self.content_offset, box)
        return box


class Guess(_Box):
    """The directive {guess}: the body is the question."""

    option_spec: ClassVar = {"unit": directives.unchanged}

    def run(self):
        if not any(line.strip() for line in self.content):
            return self.wrong("it has no question")
        return [self.box(guess_box, unit=self.options.get("unit", ""))]


class GuessAnswer(_Box):
    """The directive {guess-answer}: the body is what to say with the answer."""

    option_spec: ClassVar = {"answer": directives.unchanged_required}

    def run(self):
        fresh.note_use(self.env)
        if "answer" not in self.options:
            return self.wrong("it has no :answer:")
        try:
            value, printed = evaluate(self.options["answer"], {"measured": recorded(self.env)})
            number = float(value)
        except WrongExpression as error:
            return self.wrong(str(error))
        except (TypeError, ValueError):
            return self.wrong(f"`{self.options['answer']}` gives {value!r}, no number")
        if not math.isfinite(number):
            return self.wrong(f"`{self.options['answer']}` gives {number}, no finite number")
        return [self.box(guess_answer, value=number, printed=printed)]


def pair(app, doctree) -> None:
    """Each guess has one answer, further down on the same page."""
    asked: dict[str, guess_box] = {}
    answered: set[str] = set()
    for node in doctree.findall(lambda node: isinstance(node, guess_box | guess_answer)):
        name = node["guess"]
        if isinstance(node, guess_box):
            if name in asked:
                logger.warning("{guess}: `%s` is asked twice", name, location=node)
            asked[name] = node
        elif name not in asked:
            logger.warning("{guess-answer}: no guess `%s` stands above it", name, location=node)
        elif name in answered:
            logger.warning("{guess-answer}: `%s` is answered twice", name, location=node)
        else:
            answered.add(name)
            _finish(asked[name], node)
    for name in asked.keys() - answered:
        logger.warning("{guess}: `%s` has no {guess-answer}", name, location=asked[name])


def _finish(asked: guess_box, answer: guess_answer) -> None:
    """Give the answer its unit; where the reader types percent, the answer is a share."""
    unit, printed = asked["unit"], answer["printed"]
    answer["unit"] = unit
    answer["value"] *= 100 if unit == "%" else 1
    if unit and not printed.endswith(unit):
        printed += f" {unit}"
    answer.insert(0, nodes.paragraph("", printed, classes=["guess-value"]))


def visit_guess(self, node):
    key, page = html.escape(node["guess"]), html.escape(self.docnames[0])
    self.body.append(
        f'<div class="weft-guess" id="{node["ids"][0]}" data-guess="{key}" data-page="{page}"'
        ' role="group" aria-label="Your guess">'
    )


def depart_guess(self, node):
    identity, unit = f"{node['ids'][0]}-number", html.escape(node["unit"])
    self.body.append(
        f'<form class="guess-form" hidden><label for="{identity}">Your guess</label>'
        f'<input id="{identity}" type="text" inputmode="decimal" autocomplete="off" size="8">'
        f"<span>{unit}</span>"
        '<button type="submit">Keep it</button><p role="status"></p></form></div>\n'
    )


def visit_answer(self, node):
    key, unit = (html.escape(node.get(name, "")) for name in ("guess", "unit"))
    page = html.escape(self.docnames[0])
    self.body.append(
        f'<div class="weft-guess-answer" id="{node["ids"][0]}" data-guess="{key}"'
        f' data-unit="{unit}" data-value="{node["value"]!r}" data-page="{page}">'
        '<p class="guess-compare" role="status" hidden></p>'
        "<details><summary>The answer to the guess above</summary>"
    )


def depart_answer(self, node):
    self.body.append("</details></div>\n")


def no_frame(self, node):
    """Outside HTML the question and the answer are plain paragraphs."""


def setup(app):
    plain = dict.fromkeys(("latex", "text", "man", "texinfo"), (no_frame, no_frame))
    app.add_node(guess_box, html=(visit_guess, depart_guess), **plain)
    app.add_node(guess_answer, html=(visit_answer, depart_answer), **plain)
    app.add_directive("guess", Guess)
    app.add_directive("guess-answer", GuessAnswer)
    app.connect("doctree-read", pair)
