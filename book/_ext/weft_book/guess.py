"""`{guess}` and `{guess-answer}`: the reader commits to a number, and later sees how far off it was.

The page keeps the guess in the reader's browser. The answer is computed when the book is built
and stands only in the answer's box, folded, so that nobody reads it by accident; without
JavaScript the fold is all there is.
"""

import html
import math

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from . import fresh
from .calc import WrongExpression, evaluate
from .measured import recorded

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

    option_spec = {"unit": directives.unchanged}

    def run(self):
        if not any(line.strip() for line in self.content):
            return self.wrong("it has no question")
        return [self.box(guess_box, unit=self.options.get("unit", ""))]


class GuessAnswer(_Box):
    """The directive {guess-answer}: the body is what to say with the answer."""

    option_spec = {"answer": directives.unchanged_required}

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
        return [self.box(guess_answer, value=number, printed=printed, unit="")]


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
    unit = asked["unit"]
    answer["unit"] = unit
    if unit == "%":
        answer["value"] *= 100
    if unit and not answer["printed"].endswith(unit):
        answer["printed"] += f" {unit}"


def visit_guess(self, node):
    key, unit = (html.escape(node[name]) for name in ("guess", "unit"))
    identity = node["ids"][0]
    page = html.escape(self.docnames[0])
    self.body.append(
        f'<aside class="weft-guess" id="{identity}" data-guess="{key}" data-page="{page}"'
        f' role="group" aria-label="Your guess" data-form="{identity}-form">'
    )
    node["closing"] = (
        f'<form class="guess-form" id="{identity}-form" hidden>'
        f'<label for="{identity}-number">Your guess</label>'
        f'<input id="{identity}-number" type="text" inputmode="decimal" autocomplete="off" size="8">'
        f"<span>{unit}</span>"
        '<button type="submit">Keep it</button><p role="status"></p></form></aside>\n'
    )


def depart_guess(self, node):
    self.body.append(node["closing"])


def visit_answer(self, node):
    key, unit, printed = (html.escape(node[name]) for name in ("guess", "unit", "printed"))
    self.body.append(
        f'<aside class="weft-guess-answer" id="{node["ids"][0]}" data-guess="{key}"'
        f' data-unit="{unit}" data-value="{node["value"]!r}" data-page="{html.escape(self.docnames[0])}">'
        '<p class="guess-compare" role="status" hidden></p>'
        f"<details><summary>The answer to the guess above</summary>"
        f'<p class="guess-value">{printed}</p>'
    )


def depart_answer(self, node):
    self.body.append("</details></aside>\n")


def visit_plain_guess(self, node):
    pass


def visit_plain_answer(self, node):
    """Outside HTML the answer simply stands before its text."""
    strong = nodes.paragraph("", "", nodes.strong("", node["printed"]))
    strong.parent = node
    strong.walkabout(self)


def setup(app):
    plain = {b: (visit_plain_guess, visit_plain_guess) for b in ("latex", "text", "man", "texinfo")}
    folded = {b: (visit_plain_answer, visit_plain_guess) for b in plain}
    app.add_node(guess_box, html=(visit_guess, depart_guess), **plain)
    app.add_node(guess_answer, html=(visit_answer, depart_answer), **folded)
    app.add_directive("guess", Guess)
    app.add_directive("guess-answer", GuessAnswer)
    app.connect("doctree-read", pair)
