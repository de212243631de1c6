"""`{picture}`: a figure drawn by the library, with a caption and a text for who cannot see it."""

from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from . import fresh
from .calc import WrongExpression, evaluate
from .records import recording

logger = logging.getLogger(__name__)


class drawn(nodes.figure):
    """A figure whose HTML is in `html`; other builders show its text and caption."""


class alternative(nodes.paragraph):
    """What a picture shows, in words: the label in HTML, a paragraph everywhere else."""


class FigureDirective(SphinxDirective):
    """What every box of the book has: a name to refer to, a caption, words for the picture."""

    option_spec: ClassVar = {
        "name": directives.unchanged_required,
        "caption": directives.unchanged_required,
        "alt": directives.unchanged_required,
    }

    def wrong(self, message: str) -> list[nodes.Node]:
        """Report what is wrong where it stands, and show it in the page."""
        logger.warning("{%s}: %s", self.name, message, location=self.get_location())
        return [nodes.paragraph("", "", nodes.strong("", f"[{self.name}: {message}]"))]

    def figure(self, kind: type[drawn], **attributes) -> drawn:
        """Make the figure, with its identity and its words; the caption is Markdown."""
        fresh.note_use(self.env)
        figure = kind("", classes=["weft-box"], **attributes)
        self.set_source_info(figure)
        if "name" in self.options:
            self.add_name(figure)
        else:
            serial = self.env.new_serialno("weft")
            figure["ids"].append(f"{self.env.docname.replace('/', '-')}-figure-{serial}")
        if self.options.get("alt"):
            figure += self.words(alternative, self.options["alt"])
        return figure

    def caption(self) -> list[nodes.Node]:
        """The caption as a node, if there is one."""
        text = self.options.get("caption")
        if not text:
            return []
        inline, messages = self.state.inline_text(text, self.lineno)
        caption = nodes.caption(text, "", *inline)
        self.set_source_info(caption)
        return [caption, *messages]

    def words(self, kind: type[nodes.TextElement], text: str) -> nodes.TextElement:
        """A node whose text translators get to see."""
        node = kind(text, text)
        self.set_source_info(node)
        return node

    def missing(self, *options: str) -> str | None:
        """Say which of the options that must be there is not."""
        for option in options:
            if not self.options.get(option, "").strip():
                return f"it has no :{option}:"
        return None


class Picture(FigureDirective):
    """The directive {picture}: a calc expression that gives SVG or HTML; `record` finds records."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        problem = self.missing("caption", "alt")
        if problem:
            return self.wrong(problem)
        try:
            picture, _ = evaluate(self.arguments[0], {"record": recording(self.env)})
        except WrongExpression as error:
            return self.wrong(str(error))
        if not isinstance(picture, str) or "<" not in picture:
            return self.wrong(f"`{self.arguments[0]}` gives {type(picture).__name__}, no picture")
        figure = self.figure(drawn, html=picture)
        figure += self.caption()
        return [figure]


def alt_text(node: nodes.Element) -> str:
    """The words for a picture, translated where the page is."""
    return next((child.astext() for child in node.findall(alternative)), "")


def visit_drawn(self, node):
    self.body.append(
        self.starttag(
            node, "figure", CLASS="picture", role="group", **{"aria-label": alt_text(node)}
        )
    )
    self.body.append(f'<div class="weft-view weft-scroll" tabindex="0">{node["html"]}</div>')


def depart_drawn(self, node):
    self.body.append("</figure>\n")


def skip(self, node):
    raise nodes.SkipNode


def caption_of(node: nodes.Element) -> str:
    return next((child.astext() for child in node.findall(nodes.caption)), "")


def setup(app):
    app.add_enumerable_node(drawn, "figure", caption_of, html=(visit_drawn, depart_drawn))
    app.add_node(alternative, html=(skip, None))
    app.add_directive("picture", Picture)
