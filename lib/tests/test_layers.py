"""Who may import whom: DESIGN.md's arrows, read from the source with ast, nothing imported.

The rules are a table and two functions, so that each can be watched failing on a made-up tree.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = {  # layer -> the layers of weft that it may import, itself apart
    "plan": set(),
    "ref": {"plan"},
    "kernels": {"plan"},
    "nn": {"plan", "ref"},
    "run": {"plan", "ref", "nn", "meter"},
    "meter": set(),
    "grade": {"plan", "meter"},
    "bench": {"plan", "ref", "kernels", "nn", "run", "meter"},
    "doctor": {"plan", "run"},
    "terminal": set(),
    "cli": {"plan", "run", "grade", "bench", "doctor", "terminal"},
    "__main__": {"cli"},
    "__init__": set(),
}
OUTSIDE = {  # layer -> what it may import from outside weft and the standard library; else anything
    "plan": set(),
    "ref": {"torch"},
    "kernels": {"torch", "triton"},
    "nn": {"torch"},
    "meter": {"torch"},
    "run": {"torch", "cloudpickle"},
    "doctor": {"torch"},
    "terminal": {"rich"},
    "cli": set(),
    "__init__": set(),
    "__main__": set(),
}
COMMUNICATES = {"run", "meter", "bench"}
TOUCHES_THE_WORLD = {  # parts of the standard library that a plan, which computes, has no use for
    "asyncio", "ctypes", "http", "io", "mmap", "multiprocessing", "os", "pathlib", "shutil",
    "socket", "ssl", "subprocess", "tempfile", "threading", "urllib",
}  # fmt: skip
TEXT = {".md", ".py", ".yml", ".yaml", ".toml", ".cfg", ".cff", ".txt", ".sh", ".js", ".mjs"}
TEXT |= {".css", ".html", ".bib", ".ipynb", ".json", ".svg"}
# Written in pieces, so that this file does not hold what it looks for.
MACHINE = re.compile(
    r"(?<![\w.:/~])/(?:" + "|".join(("root", "home", "work", "Users", "tmp", "opt")) + r")/[\w.]"
)
REGISTRY = re.compile(
    "|".join(
        re.escape(f"{name}.{domain}")
        for name, domain in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("download.pytorch", "org"),
            ("npmjs", "org"),
            ("npmjs", "com"),
            ("yarnpkg", "com"),
            ("deb.debian", "org"),
            ("archive.ubuntu", "com"),
            ("conda", "anaconda.org"),
        )
    )
)


def imported(path: Path, package: str) -> Iterator[tuple[int, str]]:
    """The line and full name of each import in a file, wherever in the file it stands.

    `from a import b` gives a.b, whether b is a module or a name in a.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def forbidden(source: Path) -> list[str]:
    """A line for each import in the package `source` that the tables do not allow."""
    lines = []
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source)
        layer = inside.parts[0].removesuffix(".py")
        package = ".".join(["weft", *inside.parent.parts])
        for line, name in imported(path, package):
            reason = objection(layer, name)
            if reason:
                lines.append(f"{inside.as_posix()}:{line} imports {name}: {reason}")
    return lines


def objection(layer: str, name: str) -> str | None:
    """Why a layer may not import a module, or None."""
    top, *rest = name.split(".")
    if top == "weft":
        target = rest[0] if rest else "__init__"
        if target != layer and target not in LAYERS[layer]:
            return f"{layer} may import {sorted(LAYERS[layer]) or 'no other layer'}"
        return None
    if name.startswith("torch.distributed") and layer not in COMMUNICATES:
        return f"only {sorted(COMMUNICATES)} communicate"
    if layer == "plan" and top in TOUCHES_THE_WORLD:
        return "a plan reads no file, starts nothing and talks to nobody"
    if top not in sys.stdlib_module_names and top not in OUTSIDE.get(layer, {top}):
        return f"{layer} may import {sorted(OUTSIDE[layer]) or 'the standard library alone'}"
    return None


def project_text(root: Path) -> list[Path]:
    """The text files of the tree that people wrote: what git tracks or would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if listed.returncode == 0:
        paths = [root / name for name in listed.stdout.splitlines()]
    else:  # not a checkout, an archive say
        paths = [
            p for p in root.rglob("*") if not p.relative_to(root).parts[0].startswith((".", "_b"))
        ]
    named = {"Makefile", "run", "LICENSE", "LICENSE-text", ".gitignore"}
    vendored = {"mathjax", "pyodide"}
    return [
        p
        for p in paths
        if p.is_file()
        and (p.suffix in TEXT or p.name in named)
        and not vendored & set(p.relative_to(root).parts)
    ]


def leaks(text: str) -> list[str]:
    """The lines of a text that name a path of one machine, or the host of a registry."""
    return [s for s in text.splitlines() if MACHINE.search(s) or REGISTRY.search(s)]


def test_every_layer_keeps_to_its_arrows(root):
    assert forbidden(root / "lib" / "weft") == []


def test_every_layer_is_in_the_tables(root):
    source = root / "lib" / "weft"
    found = {p.name.removesuffix(".py") for p in source.iterdir() if p.name != "__pycache__"}
    assert found == set(LAYERS)


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("plan/a.py", "import numpy as np", "plan/a.py:1 imports numpy"),
        ("plan/a.py", "def f():\n    import torch", "plan/a.py:2 imports torch"),
        ("plan/a.py", "from pathlib import Path", "reads no file"),
        ("plan/a.py", "from weft.run import world", "plan may import no other layer"),
        ("plan/a.py", "from ..run import world", "imports weft.run.world"),
        ("plan/a.py", "from .. import run", "imports weft.run"),
        ("kernels/a.py", "from weft.ref.attention import attention", "kernels may import"),
        ("meter/a.py", "import weft.plan.pipeline", "meter may import no other layer"),
        ("meter/a.py", "import rich", "meter may import ['torch']"),
        ("nn/a.py", "import torch.distributed as dist", "communicate"),
        ("nn/a.py", "from torch import distributed", "communicate"),
        ("grade/a.py", "from torch.distributed import send", "communicate"),
        ("grade/a.py", "from weft.ref import attention", "grade may import ['meter', 'plan']"),
        ("run/a.py", "from weft import cli", "imports weft.cli"),
        ("run/a.py", "import matplotlib", "run may import"),
        ("bench/a.py", "from weft.cli import main", "imports weft.cli.main"),
    ],
)
def test_a_forbidden_import_is_named(tmp_path, file, text, complaint):
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    (found,) = forbidden(tmp_path)
    assert complaint in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("plan/a.py", "from weft.plan.pipeline import Plan"),
        ("plan/a.py", "from .pipeline import Plan\nfrom . import comm"),
        ("run/a.py", "import torch.distributed as dist\nfrom weft.plan import comm"),
        ("meter/a.py", "from torch.distributed import send"),
        ("grade/a.py", "import pytest\nfrom weft.meter import live"),
        ("terminal.py", "import rich"),
        ("cli.py", "from weft.bench import record"),
    ],
)
def test_an_allowed_import_is_not(tmp_path, file, text):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert forbidden(tmp_path) == []


def test_the_plans_load_neither_torch_nor_numpy(root):
    folder = root / "lib" / "weft" / "plan"
    names = [f"weft.plan.{p.stem}" for p in sorted(folder.glob("*.py")) if p.stem != "__init__"]
    assert names
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(root / 'lib')!r})\n"
        f"for name in {names!r}: __import__(name)\n"
        "heavy = ('torch', 'numpy', 'rich', 'triton', 'cloudpickle')\n"
        "print([m for m in heavy if m in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("[]\n", "")


def test_no_text_names_a_machine_or_a_registry(root):
    found = {}
    for path in project_text(root):
        lines = leaks(path.read_text(encoding="utf-8"))
        if lines:
            found[path.relative_to(root).as_posix()] = [line.strip()[:120] for line in lines]
    assert found == {}


def test_a_leak_is_seen():
    for path in ("/ho" + "me/ada/weft", "see /ro" + "ot/x", "('/wo" + "rk/main')", "/t" + "mp/a"):
        assert leaks(f"first\n{path}\n") == [path]
    assert leaks("pip install --index-url https://py" + "pi.org/simple\n")
    for path in ("https://example.org/home/ada", "notebooks/tmp/x", "~/work/x", "a /tmp folder"):
        assert leaks(path) == []
