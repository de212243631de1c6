"""The map in the README, made from the tree: python lib/tests/support/house.py --write.

Layers are described by the first line of their own docstrings. Topics are the chapters of
_toc.yml; a cell of the grid is there if the layer has a module or a package of that name. A cell
that stays empty has its reason here.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BEGIN, END = "<!-- the house: made by lib/tests/support/house.py -->", "<!-- end of the house -->"
LAYERS = ("process", "plan", "draw", "explore", "ref", "kernels", "nn", "run", "meter", "grade")
LAYERS += ("bench", "cli")
COLUMNS = ("plan", "draw", "explore", "ref", "kernels", "nn", "run", "bench")
ONE_PROCESS = "its reference is the same training in one process"
MOVES = "it moves and keeps tensors and computes nothing of its own"
ANY_MODEL = "it takes any module; the trainings use `nn.transformer`"
CALCULATES = "an appendix: it asks the calculators of the other chapters and runs nothing"
PASSED_IN = "it is passed in to whatever model needs it"
ONE_DEVICE = "it concerns one device; over several it is another chapter"
EMPTY = {  # topic -> layer -> why nothing of that name stands there
    "processes": {
        "ref": "its reference is one process; its program trains both ways",
        "kernels": "it starts processes and computes nothing of its own",
        "nn": "its model is one line of its program",
        "run": "what it runs is its program; `run.world` starts processes for every topic",
        "bench": "it measures nothing; what messages cost is in `collectives`",
    },
    "gpu": {
        "ref": "its operations are torch's own",
        "kernels": "its two kernels stand in its program, which imports nothing of ours",
        "nn": "there is no model in it",
        "run": ONE_DEVICE,
        "bench": "it takes its rates from data sheets and others; `roofline` measures them",
    },
    "roofline": {
        "ref": "its operations are torch's own",
        "kernels": "it measures what others' kernels reach; one is written in its exercises",
        "nn": "it counts operations, not models",
        "run": ONE_DEVICE,
    },
    "precision": {"run": "master weights that are split over ranks belong to `zero`"},
    "collectives": {
        "ref": "a sum is its own definition; torch.distributed's are what ours are held against",
        "kernels": "NCCL's are not ours, and its runs are on CPUs; one is written in its exercises",
        "nn": "there is no model in it",
    },
    "zero": {"ref": ONE_PROCESS, "kernels": MOVES, "nn": ANY_MODEL},
    "offload": {"ref": ONE_PROCESS, "kernels": MOVES, "nn": ANY_MODEL},
    "tensor": {"nn": "what it cuts is `nn.transformer`, or a linear layer of any model"},
    "pipeline": {"ref": ONE_PROCESS, "kernels": MOVES, "nn": ANY_MODEL},
    "composing": {"ref": ONE_PROCESS, "kernels": MOVES, "nn": ANY_MODEL},
    "attention": {"nn": PASSED_IN, "run": ONE_DEVICE},
    "hopper": {"nn": PASSED_IN, "run": ONE_DEVICE},
    "backward": {
        "ref": "the same in torch is in `ref.hopper`",
        "kernels": "its kernels are those of `hopper`",
        "nn": PASSED_IN,
        "run": ONE_DEVICE,
        "bench": "its kernels are measured with the forward's, in `hopper`",
    },
    "decode": {"run": ONE_DEVICE},
    "ring": {
        "ref": "its reference is `ref.attention` on the whole sequence",
        "kernels": "it takes those of `attention`, which return the log-sum-exp",
        "nn": PASSED_IN,
    },
    "sparse": {"run": "over ranks a window is a ring with little to pass on: `run.ring`"},
    "retention": {
        "run": "over ranks its state travels as any decay's does, in `run.linear`",
        "bench": "its kernels are those of `linear`, and are measured there",
    },
    "griffin": {"run": "its blocks over ranks are tensor parallelism, which is another chapter"},
    "case": {
        "draw": "its bars are those of `composing`",
        "ref": CALCULATES,
        "kernels": CALCULATES,
        "nn": CALCULATES,
        "run": CALCULATES,
        "bench": CALCULATES,
    },
}


def topics(root: Path) -> list[str]:
    """The chapters that have a plan, in the book's order."""
    listed = re.findall(r"file: book/(\w+)$", (root / "_toc.yml").read_text(), flags=re.MULTILINE)
    return [stem for stem in listed if stands(root, "plan", stem)]


def stands(root: Path, layer: str, stem: str) -> bool:
    """Whether a layer has a module or a package of that name."""
    at = root / "lib/weft" / layer
    return (at / f"{stem}.py").is_file() or (at / stem / "__init__.py").is_file()


def described(root: Path, layer: str) -> str:
    """What a layer says that it is, in the first line of its docstring."""
    source = (root / "lib/weft" / layer / "__init__.py").read_text(encoding="utf-8")
    line = ast.get_docstring(ast.parse(source)).splitlines()[0].rstrip(".")
    word, dot, rest = line.partition(". ")
    return f"{word.lower():10}{rest}" if dot else f"{'':10}{line}"


def made(root: Path) -> str:
    """The text between the two marks: the layers, the grid, and why some of its cells are empty."""
    wide = max(map(len, LAYERS)) + 2
    lines = ["```", *(f"lib/weft/{at:{wide}}{described(root, at)}" for at in LAYERS), "```", ""]
    lines += ["| | " + " | ".join(f"`{at}`" for at in COLUMNS) + " |"]
    lines += ["|---|" + ":-:|" * len(COLUMNS)]
    for stem in topics(root):
        cells = ("●" if stands(root, at, stem) else "" for at in COLUMNS)
        lines.append(f"| `{stem}` | " + " | ".join(cells) + " |")
    reasons: dict[tuple[str, str], list[str]] = {}
    for stem in topics(root):
        for layer, reason in EMPTY.get(stem, {}).items():
            reasons.setdefault((layer, reason), []).append(f"`{stem}`")
    lines += ["", "What is empty, and why:", ""]
    for layer in COLUMNS:
        said = [(stems, why) for (at, why), stems in reasons.items() if at == layer]
        if said:
            told = "; ".join(f"{', '.join(stems)}: {why}" for stems, why in said)
            lines.append(f"- `{layer}`. {told}.")
    return "\n".join(lines)


def empty_cells(root: Path) -> dict[str, set[str]]:
    """The layers that have nothing of a topic's name, topic by topic."""
    gaps = {s: {at for at in COLUMNS if not stands(root, at, s)} for s in topics(root)}
    return {stem: layers for stem, layers in gaps.items() if layers}


def renewed(text: str, root: Path) -> str:
    """A README with the map as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{made(root)}\n{END}{after}"


if __name__ == "__main__":
    readme = ROOT / "README.md"
    then = readme.read_text(encoding="utf-8")
    now = renewed(then, ROOT)
    if "--write" in sys.argv:
        readme.write_text(now, encoding="utf-8")
    elif now != then:
        sys.exit("the map in README.md is not the tree's; --write makes it anew")
