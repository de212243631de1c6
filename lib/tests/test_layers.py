"""Who may import whom, read from the source with ast, nothing imported.

A row of the house is a topic of the book, a column a layer of the library. The rules are tables
and functions from a tree to complaints, so that each can be watched failing on a made-up tree.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = {  # layer -> the layers of weft that it may import, itself apart
    "process": set(),
    "plan": set(),
    "draw": {"plan"},
    "explore": {"plan", "draw"},
    "ref": {"plan"},
    "kernels": {"process", "plan"},
    "nn": {"plan", "ref"},
    "meter": set(),
    "run": {"process", "plan", "ref", "nn", "meter"},
    "grade": {"process", "plan", "meter", "run"},
    "bench": {"process", "plan", "draw", "explore", "ref", "kernels", "nn", "run", "meter"},
    "doctor": {"plan", "run"},
    "terminal": set(),
    "guess": set(),
    "cli": {"plan", "draw", "run", "grade", "bench", "doctor", "terminal"},
    "__main__": {"cli"},
    "__init__": set(),
}
SHARED = {  # layers whose entries are topics -> what else they hold, which several topics share
    "plan": {"arguments", "comm", "hardware", "memory", "schedule", "shape", "simulate"}
    | {"tensors", "units"},
    "draw": {"chart", "figure", "measured", "memory"},
    "explore": {"box", "memory"},
    "ref": set(),
    "kernels": {"code", "gluon", "interpret"},
    "nn": {"published", "transformer"},
    "run": {"digest", "files", "train", "world"},
    "bench": {"clock", "goals", "jobs", "machine_code", "record"},
}
OUTSIDE = {  # layer -> what it may import from outside weft and the standard library; else anything
    "process": set(),
    "plan": set(),
    "draw": set(),
    "explore": set(),
    "ref": {"torch"},
    "kernels": {"torch", "triton"},
    "nn": {"safetensors", "torch"},
    "meter": {"torch"},
    "run": {"torch", "cloudpickle", "xxhash"},
    "doctor": {"torch"},
    "terminal": {"rich"},
    "guess": set(),
    "cli": set(),
    "__init__": set(),
    "__main__": set(),
}
LIGHT = ("process", "plan", "draw", "explore")  # they need Python alone
COMMUNICATES = {"run", "meter", "bench", "grade"}
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


def entries(layer: Path) -> set[str]:
    """What `ls` of a layer shows: the names of its modules and packages."""
    found = {p.name.removesuffix(".py") for p in layer.iterdir() if p.suffix in ("", ".py")}
    return found - {"__init__", "__pycache__"}


def strangers(source: Path, stems: set[str]) -> list[str]:
    """What lies in a layer's folder and is neither a topic of the book nor shared by several."""
    return [
        f"{layer}/{name} is neither a chapter nor in that layer's short list"
        for layer, shared in SHARED.items()
        if (source / layer).is_dir()
        for name in sorted(entries(source / layer) - stems - shared)
    ]


def handed_on(package: Path) -> set[str]:
    """The names in a package's `__all__`."""
    for node in ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def through_walls(source: Path) -> list[str]:
    """Imports that reach into another topic's package instead of through its front door.

    A file may import from the packages of its own topic, in every layer, as it likes. From any
    other package it takes what `__all__` hands on, or a package inside it.
    """
    lines = []
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source)
        topic = inside.parts[1].removesuffix(".py") if len(inside.parts) > 1 else None
        for line, name in imported(path, ".".join(["weft", *inside.parent.parts])):
            _, *parts = name.split(".")
            if len(parts) < 3 or parts[0] not in SHARED or parts[1] == topic:
                continue
            door = source.joinpath(*parts[:2])
            rest = parts[2:]
            while rest and (door / rest[0]).is_dir():
                door, rest = door / rest[0], rest[1:]
            if door.is_dir() and rest and (len(rest) > 1 or rest[0] not in handed_on(door)):
                lines.append(f"{inside.as_posix()}:{line} imports {name}, past the front door")
    return lines


def circles(source: Path) -> list[list[str]]:
    """Modules that import each other, lazily or not: every strongly connected group of them."""
    module = {}
    for path in sorted(source.rglob("*.py")):
        parts = ["weft", *path.relative_to(source).with_suffix("").parts]
        module[".".join(parts).removesuffix(".__init__")] = path
    arrows = {}
    for name, path in module.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        ends = {end for _, end in imported(path, package)}
        ends = {end if end in module else end.rpartition(".")[0] for end in ends}
        arrows[name] = sorted((ends & set(module)) - {name})
    return [sorted(group) for group in connected(arrows) if len(group) > 1]


def connected(arrows: dict[str, list[str]]) -> list[list[str]]:
    """Tarjan's strongly connected components."""
    number, low, stack, groups = {}, {}, [], []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for end in arrows[node]:
            if end not in number:
                visit(end)
            if end in stack:
                low[node] = min(low[node], low[end])
        if low[node] == number[node]:
            at = stack.index(node)
            groups.append(stack[at:])
            del stack[at:]

    for node in arrows:
        if node not in number:
            visit(node)
    return groups


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
    vendored = {"mathjax", "pyodide", "fonts"}
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


def test_a_layer_lists_the_chapters(root, stems):
    assert strangers(root / "lib" / "weft", stems) == []


def test_what_is_shared_is_there(root):
    source = root / "lib" / "weft"
    assert {layer: SHARED[layer] - entries(source / layer) for layer in SHARED} == {
        layer: set() for layer in SHARED
    }


def test_topics_meet_at_their_front_doors(root):
    assert through_walls(root / "lib" / "weft") == []


def test_nothing_imports_itself_in_a_circle(root):
    assert circles(root / "lib" / "weft") == []


def test_a_front_door_names_what_it_hands_on(root):
    for init in sorted((root / "lib" / "weft").rglob("__init__.py")):
        inside = [line for line in init.read_text(encoding="utf-8").splitlines() if line]
        package = init.parent.relative_to(root / "lib").as_posix()
        if any(line.startswith("from weft") for line in inside):
            assert handed_on(init.parent), f"{package} imports and hands on nothing"


@pytest.fixture(scope="module")
def stems(root) -> set[str]:
    """The topics of the book: its chapters by file name, and those that are to come."""
    text = (root / "_toc.yml").read_text(encoding="utf-8")
    to_come = (root / "book/chapters.md").read_text(encoding="utf-8")
    return set(re.findall(r"file: book/(\w+)$", text, flags=re.MULTILINE)) | set(
        re.findall(r"^\|[^|]*\| `(\w+)` \|", to_come, flags=re.MULTILINE)
    )


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_stranger_in_a_layer_is_named(tmp_path):
    source = tree(tmp_path, {"plan/zero.py": "", "plan/zero_alive.py": "", "run/world.py": ""})
    assert strangers(source, {"zero"}) == [
        "plan/zero_alive is neither a chapter nor in that layer's short list"
    ]


@pytest.mark.parametrize(
    ("importer", "text", "past"),
    [
        ("plan/offload.py", "from weft.plan.zero.kept import alive", True),
        ("plan/offload.py", "from weft.plan.zero import kept", True),
        ("run/offload/store.py", "import weft.plan.zero.kept", True),
        ("cli/draw.py", "from weft.plan.zero.kept import alive", True),
        ("plan/offload.py", "from weft.plan.zero import alive", False),
        ("plan/offload.py", "from weft.plan import zero", False),
        ("plan/offload.py", "from weft.plan.zero.inner import alive", False),
        ("run/zero/wrap.py", "from weft.plan.zero.kept import alive", False),
    ],
)
def test_who_goes_past_a_front_door_is_named(tmp_path, importer, text, past):
    files = {
        "plan/zero/__init__.py": "from weft.plan.zero.kept import alive\n__all__ = ['alive']",
        "plan/zero/kept.py": "alive = 1",
        "plan/zero/inner/__init__.py": "alive = 1\n__all__ = ['alive']",
        importer: text,
    }
    assert bool(through_walls(tree(tmp_path, files))) is past


def test_a_circle_is_named_also_a_lazy_one(tmp_path):
    files = {
        "plan/a.py": "from weft.plan import b",
        "plan/b.py": "from weft.plan.c import f",
        "plan/c.py": "def f():\n    from weft.plan.a import g",
        "plan/d.py": "from weft.plan import a",
    }
    assert circles(tree(tmp_path, files)) == [["weft.plan.a", "weft.plan.b", "weft.plan.c"]]


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
        ("ref/a.py", "from torch.distributed import send", "communicate"),
        (
            "grade/a.py",
            "from weft.ref import attention",
            "grade may import ['meter', 'plan', 'process', 'run']",
        ),
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


def test_what_the_browser_runs_loads_neither_torch_nor_numpy(root):
    lib = root / "lib"
    paths = [p for at in LIGHT for p in sorted((lib / "weft" / at).rglob("*.py"))]
    names = [".".join(p.relative_to(lib).with_suffix("").parts) for p in paths]
    assert len(names) > 100
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(lib)!r})\n"
        f"for name in {[name.removesuffix('.__init__') for name in names]!r}: __import__(name)\n"
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
