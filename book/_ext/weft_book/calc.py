"""`{calc}`: a Python expression over the library's plans, evaluated when the book is built.

What stands in the role is what would stand between the braces of an f-string:
{calc}`bubble.fraction(p=8, m=32):.1%` prints 17.9%.
"""

import ast
import builtins
import difflib
import importlib
import math
import pkgutil
from functools import cache
from types import ModuleType

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

import weft.plan

from . import fresh
from .records import recorded

logger = logging.getLogger(__name__)


LAYERS = ("plan", "draw", "explore")  # where `module.name` is looked for


class WrongExpression(Exception):
    """What an author wrote cannot be computed; the message says why."""


@cache
def modules(layer: str) -> dict[str, ModuleType]:
    """The modules of a layer by name: the book's topics, and what they share."""
    found = pkgutil.iter_modules(importlib.import_module(f"weft.{layer}").__path__)
    return {at.name: importlib.import_module(f"weft.{layer}.{at.name}") for at in found}


@cache
def plan_names() -> dict[str, dict[str, object]]:
    """Every public name that weft.plan defines: name -> {module: value}."""
    found: dict[str, dict[str, object]] = {}
    for at in pkgutil.walk_packages(weft.plan.__path__, "weft.plan."):
        module = importlib.import_module(at.name)
        if at.ispkg:
            continue
        for name, value in vars(module).items():
            defined_here = getattr(value, "__module__", module.__name__) == module.__name__
            if not name.startswith("_") and defined_here and not isinstance(value, ModuleType):
                found.setdefault(name, {})[at.name.removeprefix("weft.plan.")] = value
    return found


def split_format(text: str) -> tuple[str, str]:
    """Part an expression from its format at the last colon that is not the expression's own.

    >>> split_format("x[1:2]"), split_format("x[1:2]:.1f")
    (('x[1:2]', ''), ('x[1:2]', '.1f'))
    """
    text = text.strip()
    at = len(text)
    while at > 0:
        expression, spec = text[:at].strip(), text[at + 1 :].strip()
        try:
            ast.parse(expression, mode="eval")
        except SyntaxError:
            at = text.rfind(":", 0, at)
        else:
            return expression, spec
    raise WrongExpression(f"`{text}` is not a Python expression")


class _Qualify(ast.NodeTransformer):
    """Let `zero.sent` mean the plan's function and `zero.shares_svg` the picture.

    A module is looked for layer by layer, and found where it has what is asked of it; also where
    a function has the module's name.
    """

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name):
            for layer in LAYERS:
                if hasattr(modules(layer).get(node.value.id), node.attr):
                    node.value.id = f"module {layer} {node.value.id}"
                    break
        return node


def namespace(tree: ast.AST, more: dict[str, object]) -> dict[str, object]:
    """The names that an expression uses, each resolved; an unknown one is an error."""
    bound = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - bound
    return {name: _resolve(name, more) for name in names}


def _resolve(name: str, more: dict[str, object]) -> object:
    if name.startswith("module "):
        _, layer, module = name.split(" ")
        return modules(layer)[module]
    if name in more:
        return more[name]
    if name == "math":
        return math
    homes = plan_names().get(name, {})
    if len({id(value) for value in homes.values()}) > 1:
        spelled = " or ".join(f"{module}.{name}" for module in sorted(homes))
        raise WrongExpression(f"`{name}` is defined more than once; write {spelled}")
    if homes:
        return next(iter(homes.values()))
    if name in modules("plan"):
        return modules("plan")[name]
    if hasattr(builtins, name):
        return getattr(builtins, name)
    near = difflib.get_close_matches(name, [*plan_names(), *modules("plan"), *more], n=1)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    raise WrongExpression(f"weft.plan defines no `{name}`{hint}")


def evaluate(text: str, more: dict[str, object] | None = None) -> tuple[object, str]:
    """Compute `expression[:format]`; return the value and its printed form."""
    expression, spec = split_format(text)
    tree = _Qualify().visit(ast.parse(expression, mode="eval"))
    names = namespace(tree, more or {})
    try:
        value = eval(compile(tree, "<calc>", "eval"), names)
        return value, format(value, spec)
    except Exception as error:
        raise WrongExpression(f"`{text.strip()}` fails: {type(error).__name__}: {error}") from error


class calc_number(nodes.inline):
    """A computed number; in HTML its expression shows when the pointer rests on it."""


class Calc(SphinxRole):
    """The role {calc}."""

    def run(self):
        fresh.note_use(self.env)
        try:
            _, printed = evaluate(self.text, {"measured": recorded(self.env)})
        except WrongExpression as error:
            logger.warning("{calc}: %s", error, location=self.get_location())
            return [nodes.strong(self.text, f"[{self.text}]")], []
        expression, _ = split_format(self.text)
        return [calc_number(self.rawtext, printed, expression=expression)], []


def visit_calc_number(self, node):
    self.body.append(
        self.starttag(node, "span", "", CLASS="calc", title=f"computed: {node['expression']}")
    )


def depart_calc_number(self, node):
    self.body.append("</span>")


def setup(app):
    app.add_node(calc_number, html=(visit_calc_number, depart_calc_number))
    app.add_role("calc", Calc())
