"""`{explore}`: a picture with sliders, drawn by the book's own library.

The default state is drawn when the book is built, so the page shows a picture without
JavaScript, in print and in search. With `:frames:` every state is drawn then and travels in the
page; without it, Pyodide runs the same library in the page when a slider is first moved. With
`:play: NAME` too, that control moves by itself until the reader takes over.
"""

import base64
import html
import itertools
import json
import math
import re
import shutil
import zlib
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives

import weft

from . import states
from .calc import LAYERS
from .controls import Control, parse
from .fresh import fingerprint
from .picture import FigureDirective, alt_text, caption_of, depart_drawn, drawn, skip

MOST_STATES = 2000
MOST_BYTES = 300_000


class explore_box(drawn):
    """A figure with controls."""


class explore_controls(nodes.General, nodes.Element):
    """The controls of a box; only HTML has any."""


class explore_label(nodes.Part, nodes.TextElement):
    """The label of one control, or one entry of a menu."""


class Explore(FigureDirective):
    """The directive {explore}."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = FigureDirective.option_spec | {
        "frames": directives.flag,
        "play": directives.unchanged_required,
    }

    def run(self):
        problem = self.missing("caption", "alt")
        if problem:
            return self.wrong(problem)
        if not re.fullmatch(r"\w+\.\w+", self.arguments[0]):
            return self.wrong(f"`{self.arguments[0]}` is not MODULE.FUNCTION of weft.explore")
        try:
            controls = [parse(line) for line in self.content if line.strip()]
            picture = self.default_picture(controls)
            frames = self.all_frames(controls) if "frames" in self.options else None
            plays = self.played(controls)
        except Exception as error:
            return self.wrong(str(error) or type(error).__name__)
        figure = self.figure(
            explore_box,
            html=picture,
            target=self.arguments[0],
            controls=_wire(controls),
            frames=frames,
            plays=plays,
        )
        figure += self.control_nodes(controls)
        figure += self.caption()
        return [figure]

    def default_picture(self, controls: list[Control]) -> str:
        if not controls:
            raise ValueError("it has no controls; use {picture} for a picture without any")
        return self.draw(controls, [control.default for control in controls], strict=True)

    def played(self, controls: list[Control]) -> int | None:
        """Which control moves by itself."""
        if "play" not in self.options:
            return None
        named = {control.name: at for at, control in enumerate(controls)}
        if "frames" not in self.options or self.options["play"] not in named:
            raise ValueError(f":play: {self.options['play']} is no control of a box with :frames:")
        return named[self.options["play"]]

    def all_frames(self, controls: list[Control]) -> str:
        count = math.prod(len(control.values) for control in controls)
        if count > MOST_STATES:
            raise ValueError(f"{count} states are too many for :frames: (at most {MOST_STATES})")
        chosen = itertools.product(*(range(len(control.values)) for control in controls))
        packed = pack([self.draw(controls, list(positions)) for positions in chosen])
        if len(packed) > MOST_BYTES:
            raise ValueError(
                f"{count} states take {len(packed)} bytes in the page (at most {MOST_BYTES});"
                " leave out :frames:, or draw less"
            )
        return packed

    def draw(self, controls: list[Control], chosen: list[int], strict: bool = False) -> str:
        """Draw one state as the page will; say which state fails, if one does."""
        where = ", ".join(
            f"{control.name}={control.values[at]!r}"
            for control, at in zip(controls, chosen, strict=True)
        )
        call = f"{self.arguments[0]}({where})"
        try:
            picture = states.draw(self.arguments[0], _wire(controls), chosen)
        except Exception as error:
            raise ValueError(f"{call} fails: {type(error).__name__}: {error}") from error
        if not isinstance(picture, str):
            raise ValueError(f"{call} gives {type(picture).__name__}, no picture")
        if strict and picture.startswith('<p class="explore-note">'):
            raise ValueError(f"{call}, the default state, cannot be drawn: {picture[24:-4]}")
        return picture

    def control_nodes(self, controls: list[Control]) -> explore_controls:
        group = explore_controls()
        for control in controls:
            node = nodes.Element("", kind=control.kind, default=control.default)
            node += self.words(explore_label, control.label)
            node += [self.words(explore_label, text) for text in control.texts]
            group += node
        return group


def pack(pictures: list[str]) -> str:
    """Pack the frames: JSON, deflated (they repeat each other), as text that HTML can carry."""
    return base64.b64encode(zlib.compress(json.dumps(pictures).encode(), 9)).decode()


def _wire(controls: list[Control]) -> str:
    return json.dumps([[control.name, control.values] for control in controls])


def visit_explore(self, node):
    attributes = {
        "role": "group",
        "aria-label": alt_text(node),
        "data-target": node["target"],
        "data-controls": node["controls"],
    }
    if node["plays"] is not None:
        attributes["data-plays"] = str(node["plays"])
    self.body.append(self.starttag(node, "figure", CLASS="explore", **attributes))
    group = next(node.findall(explore_controls))
    fields = [_field(f"{node['ids'][0]}-{i}", control) for i, control in enumerate(group)]
    self.body.append(f'<form class="explore-form" hidden>{"".join(fields)}</form>')
    self.body.append('<p class="explore-status" role="status"></p>')
    self.body.append(f'<div class="weft-view explore-view">{node["html"]}</div>')
    self.body.append('<p class="explore-spoken" role="status" aria-live="polite"></p>')
    if node["frames"]:
        self.body.append(f'<script type="application/x-frames">{node["frames"]}</script>')


def _field(identity: str, control: nodes.Element) -> str:
    """One label with its slider, menu or tick box; its value is a position among the values."""
    label, *texts = (html.escape(part.astext()) for part in control)
    default = control["default"]
    name = f'id="{identity}" data-control data-default="{default}"'
    start = f'<div class="explore-field"><label for="{identity}">{label}</label>'
    if control["kind"] == "tick":
        checked = " checked" if default else ""
        return f'{start}<input type="checkbox" {name}{checked}></div>'
    if control["kind"] == "menu":
        chosen = ["", " selected"]
        options = "".join(
            f"<option{chosen[i == default]}>{t}</option>" for i, t in enumerate(texts)
        )
        return f"{start}<select {name}>{options}</select></div>"
    spoken = html.escape(json.dumps([part.astext() for part in list(control)[1:]]))
    return (
        f'{start}<output for="{identity}">{texts[default]}</output><input type="range" {name}'
        f' min="0" max="{len(texts) - 1}" value="{default}" aria-valuetext="{texts[default]}"'
        f' data-texts="{spoken}"></div>'
    )


def copy_library(app, error) -> None:
    """Put what draws a state, and the layers it stands on, where the page's Python finds them."""
    if error is not None or app.builder.format != "html":
        return
    library, target = Path(weft.__file__).parent, Path(app.outdir, "_static", "pylib")
    shutil.rmtree(target, ignore_errors=True)
    sources = {"states.py": Path(states.__file__), "weft/__init__.py": library / "__init__.py"}
    for path in sorted(path for layer in LAYERS for path in library.glob(f"{layer}/**/*.py")):
        sources[f"weft/{path.relative_to(library).as_posix()}"] = path
    for name, path in sources.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / name)
    listing = {"version": fingerprint(Path(app.srcdir)), "files": list(sources)}
    (target / "files.json").write_text(json.dumps(listing, indent=1))


def setup(app):
    app.add_enumerable_node(explore_box, "figure", caption_of, html=(visit_explore, depart_drawn))
    ignored = dict.fromkeys(("html", "latex", "text", "man", "texinfo"), (skip, None))
    app.add_node(explore_controls, **ignored)
    app.add_directive("explore", Explore)
    app.connect("build-finished", copy_library)
