"""What the assembler makes of the book's kernels: counted, not timed, and the same on any machine.

One record for each topic whose kernels compile. A GPU is not needed; the versions of Triton and
of the assembler that it carries are what a difference between two records comes from.
"""

from collections.abc import Callable
from importlib import import_module

from weft.bench.record import Record, Result
from weft.kernels import Compiled, compile_for

COMMAND = "weft bench machine_code"
FACES = {  # topic -> its face and what it is compiled for
    "attention": ("attention", ("sm_80", "sm_90")),
    "decode": ("paged_attention", ("sm_80", "sm_90", "sm_100")),
}
MATRIX = ("HMMA", "HGMMA", "QGMMA", "UTCHMMA", "UTCQMMA")  # every tensor core's instructions


def bench(progress: Callable[[str], object]) -> list[Record]:
    """A record of registers, spills, shared memory and matrix instructions for each topic."""
    records = []
    for topic, (face, targets) in FACES.items():
        kernel = getattr(import_module(f"weft.kernels.{topic}"), face)
        results = []
        for target in targets:
            progress(f"compiling {topic} for {target}")
            for made in compile_for(kernel, target):
                results += counted(made, target)
        title = f"What the assembler makes of the kernels: {topic}"
        records.append(Record.here(f"{topic}-code", title, topic, COMMAND, results))
    return records


def counted(made: Compiled, target: str) -> list[Result]:
    """The counts of one compiled pass."""
    columns = {
        "registers": ("1", made.registers),
        "spilled": ("B", made.spills),
        "shared": ("B", made.shared_bytes),
        "matrix instructions": ("1", sum(made.count(name) for name in MATRIX)),
    }
    return [
        Result.of(f"{made.name}, {target}", who, unit, [float(count)])
        for who, (unit, count) in columns.items()
    ]
