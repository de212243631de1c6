"""What the assembler makes of the book's kernels: counted, not timed, and the same on any machine.

One record for each topic whose kernels compile. A GPU is not needed; the versions of Triton and
of the assembler that it carries are what a difference between two records comes from.
"""

from collections.abc import Callable, Iterator
from importlib import import_module

from weft.bench.record import Record, Result
from weft.kernels import Compiled, compile_for

COMMAND = "weft bench machine_code"
TARGETS = ("sm_80", "sm_90", "sm_100")
FACES = {  # topic -> its face, what it is compiled for, and the kinds of it: what each is called
    "attention": (
        "attention",
        TARGETS,
        {f" at width {width}": {"width": width} for width in (64, 128, 256)},
    ),
    "decode": ("paged_attention", TARGETS, {"": {}}),
    "hopper": ("attention", ("sm_90",), {"": {}}),
}
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now
MATRIX = ("HMMA", "HGMMA", "QGMMA", "UTCHMMA", "UTCQMMA")  # every tensor core's instructions


def bench(progress: Progress) -> Iterator[Record]:
    """A record of registers, spills, shared memory and matrix instructions for each topic."""
    total = sum(len(targets) * len(kinds) for _, targets, kinds in FACES.values())
    done = 0
    for topic, (face, targets, kinds) in FACES.items():
        kernel = getattr(import_module(f"weft.kernels.{topic}"), face)
        results = []
        for kind, given in kinds.items():
            for target in targets:
                progress(done, total, f"compiling {topic}{kind} for {target}")
                for made in compile_for(kernel, target, **given):
                    results += counted(made, f"{made.name} for {target}{kind}")
                done += 1
        title = f"What the assembler makes of the kernels: {topic}"
        yield Record.here(f"{topic}-code", title, topic, COMMAND, results)


def counted(made: Compiled, name: str) -> list[Result]:
    """The counts of one compiled pass."""
    columns = {
        "registers": ("1", made.registers),
        "spilled": ("B", made.spills),
        "shared": ("B", made.shared_bytes),
        "matrix instructions": ("1", sum(made.count(name) for name in MATRIX)),
    }
    return [Result.of(name, who, unit, [float(count)]) for who, (unit, count) in columns.items()]
