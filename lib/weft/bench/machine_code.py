"""What the assembler makes of the book's kernels: counted, not timed, and the same on any machine.

One record for each topic whose kernels compile. A GPU is not needed; the versions of Triton and
of the assembler that a record carries are what a difference between two of them comes from. For
Hopper the hot loop is counted too, and what a turn of it costs each unit at least
(`weft.plan.hopper.floor`). `differences` compares what is compiled now with a record.
"""

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

import triton
from triton import knobs

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement, Record
from weft.kernels import Compiled, Pass, compile_for
from weft.kernels import attention as attention_
from weft.kernels import decode as decode_
from weft.kernels import experts as experts_
from weft.kernels import griffin as griffin_
from weft.kernels import hopper as hopper_
from weft.kernels import precision as precision_
from weft.kernels import sparse as sparse_
from weft.kernels import tensor as tensor_
from weft.kernels.code import Instruction, Loop, plain, source
from weft.kernels.experts import hopper as experts_hopper
from weft.kernels.hopper import fp8
from weft.kernels.linear import delta as delta_
from weft.kernels.linear import gated
from weft.plan.hopper import Turn, alone, ceiling, clocks

COMMAND = "weft bench machine_code"
TARGETS = ("sm_80", "sm_90", "sm_100")
WIDTHS = (64, 128, 256)
WINDOW = 1024  # keys that a query sees, itself included
MATRIX = ("HMMA", "HGMMA", "QGMMA", "UTCHMMA", "UTCQMMA")  # every tensor core's instructions
EQUAL = "source"  # the column that stays as long as the compiler is given the same
LESS = ("ceiling", "alone")  # columns where less is worse; in all others more is
AT_ONCE = 8  # passes of one process, which has a limit
OTHER = 0.5  # how much worse than the record another Triton's code may be
Row = tuple[str, str, float, float]  # a kernel, what of it, what that was, what it is


# --- every configuration that is tuned ------------------------------------------------------------


def attention(target: str) -> Iterator[Pass]:
    """FlashAttention-2, by head width; without a mask, what a mask makes different."""
    for width in WIDTHS:
        yield from _named(attention_.passes(target, width=width), target, f" at width {width}")
        free = attention_.passes(target, width=width, causal=False) if target == "sm_90" else ()
        free = [one for one in free if one.name != "delta"]
        yield from _named(free, target, f" at width {width} without a mask")


def decode(target: str) -> Iterator[Pass]:
    """A step of decoding from a paged cache."""
    yield from _named(decode_.passes(target), target)


def delta(target: str) -> Iterator[Pass]:
    """The delta rule in chunks with a decay by head, which is more work than without one."""
    for width in WIDTHS:
        yield from _named(delta_.passes(target, width=width), target, f" at width {width}")


def experts(target: str) -> Iterator[Pass]:
    """The experts' MLP with its gradients; for Hopper also what is written for Hopper alone."""
    yield from _named(experts_.passes(target), target)
    if target == "sm_90":
        shared = {source(one) for one in experts_.passes(target)}
        own = [one for one in experts_hopper.passes(target) if source(one) not in shared]
        yield from _named(own, target, version="hopper ")


def griffin(target: str) -> Iterator[Pass]:
    """The RG-LRU's scan: one pass over time, and the version in chunks."""
    yield from _named(griffin_.passes(target), target)


def hopper(target: str) -> Iterator[Pass]:
    """FlashAttention-3: the face with both backwards, the versions before it, and FP8."""
    for width in WIDTHS:
        for causal, mask in ((True, ""), (False, " without a mask")):
            kind = f" at width {width}{mask}"
            listed = hopper_.passes(target, width=width, causal=causal)
            listed = [one for one in listed if causal or one.name != "delta"]
            yield from _named(listed, target, kind)
            for version in (hopper_.simple, hopper_.specialized, hopper_.pingpong):
                listed = version.passes(target, width=width, causal=causal)
                yield from _named(listed, target, kind, f"{version.__name__} ")
            listed = fp8.passes(target, width=width, causal=causal)
            yield from _named(listed, target, kind, "fp8 ")
            if width in hopper_.FUSED:
                listed = hopper_.fused.passes(target, width, causal)
                yield from _named(listed[-1:], target, kind)


def linear(target: str) -> Iterator[Pass]:
    """The chunked form, with decays by head; and by channel, but for the chip where those spill."""
    for width in WIDTHS:
        yield from _named(gated.passes(target, width=width), target, f" at width {width}")
        if target != "sm_80":
            kind = f" at width {width} by channel"
            yield from _named(gated.passes(target, channels=True, width=width), target, kind)


def precision(target: str) -> Iterator[Pass]:
    """Adam on master weights, a tensor at a time and all at once."""
    yield from _named(precision_.passes(target), target)


def sparse(target: str) -> Iterator[Pass]:
    """Attention along lists of squares, the version before them, and dense attention's window."""
    for width in WIDTHS:
        kind = f" at width {width}"
        for listed, of in (
            (sparse_.passes(target, width=width), ""),
            (sparse_.passes(target, width=width, layout=True), " of a layout"),
            (attention_.passes(target, width=width, window=WINDOW), " in a window"),
        ):
            listed = [one for one in listed if one.name != "delta"]
            yield from _named(listed, target, f"{kind}{of}")
    yield from _named(sparse_.versions.passes(target), target, " at width 128")


def tensor(target: str) -> Iterator[Pass]:
    """Norms with their residual by width, SwiGLU, and the cross-entropy over a part."""
    yield from _named(tensor_.passes(target), target)


FACES = {
    "attention": (attention, TARGETS),
    "decode": (decode, TARGETS),
    "delta": (delta, TARGETS),
    "experts": (experts, TARGETS),
    "griffin": (griffin, TARGETS),
    "hopper": (hopper, ("sm_90",)),
    "linear": (linear, TARGETS),
    "precision": (precision, TARGETS),
    "sparse": (sparse, TARGETS),
    "tensor": (tensor, TARGETS),
}


def _named(listed: Iterable[Pass], target: str, kind: str = "", version: str = "") -> list[Pass]:
    return [replace(one, name=f"{version}{one.name} for {target}{kind}") for one in listed]


def _chosen(face: Callable, target: str, only: tuple[str, ...] = ()) -> tuple[Pass, ...]:
    return tuple(one for one in face(target) if not only or one.name in only)


def _compilable(face: Callable) -> None:
    """Let compile_for take some of a face's passes, by their names."""
    face.passes = lambda target, only=(): _chosen(face, target, only)


for _face, _ in FACES.values():
    _compilable(_face)


def built(topic: str, target: str, names: Sequence[str]) -> list[Compiled]:
    """Some passes of a topic, compiled in one process."""
    return compile_for(FACES[topic][0], target, only=tuple(names))


# --- the records ----------------------------------------------------------------------------------


def assembled(topic: str, run: BenchRun) -> Found:
    """Of a topic's passes: registers, spills, shared memory, instructions, and the hot loop."""
    face, targets = FACES[topic]
    passes = {one.name: one for target in targets for one in face(target)}
    work = [
        (target, names[i : i + AT_ONCE])
        for target in targets
        for names in [[one.name for one in face(target)]]
        for i in range(0, len(names), AT_ONCE)
    ]
    results = []
    for target, names in run.each(work, "compiling for {0[0]}: {0[1][0]} and on"):
        for made in built(topic, target, names):
            results += counted(made, passes[made.name])
    return f"What the assembler makes of the kernels: {topic}", results


def counted(made: Compiled, one: Pass) -> list[Measurement]:
    """The counts of one compiled pass, by column."""
    columns: dict[str, tuple[str, float]] = {
        "registers": ("1", made.registers),
        "spilled": ("B", made.spills),
        "shared": ("B", made.shared_bytes),
        "matrix instructions": ("1", sum(made.count(name) for name in MATRIX)),
        "instructions": ("1", len(made.instructions)),
        EQUAL: ("1", source(one)),
    }
    roles = plain(made.loops) if " sm_90" in made.name else ()
    if roles:
        turn = turn_of(roles, made.warps)
        busy = {f"clocks: {unit}": ("1", time) for unit, time in clocks(turn).items()}
        columns |= {"loop": ("1", turn.issued)} | busy
        if turn.flops or turn.eight:
            columns |= {"ceiling": ("1", ceiling(turn)), "alone": ("1", alone(turn))}
    return [
        Measurement.of(made.name, who, unit, [round(float(count), 4)])
        for who, (unit, count) in columns.items()
    ]


def turn_of(roles: Sequence[Loop], warps: int) -> Turn:
    """A turn of all roles of warps at once, `warps` in each: what one warp does in the mean."""

    def mean(of: Callable[[Instruction], float]) -> float:
        return sum(of(one) for role in roles for one in role.turn) / len(roles)

    def kept(unit: str) -> float:
        return mean(lambda one: one.unit == unit)

    eight = mean(lambda one: one.flops if one.name.startswith("QGMMA") else 0)
    return Turn(
        warps=warps * len(roles),
        issued=mean(lambda one: 1),
        flops=mean(lambda one: one.flops) - eight,
        eight=eight,
        moved=mean(lambda one: one.moved),
        factors=mean(lambda one: one.factors),
        **{unit: kept(unit) for unit in ("exp", "fp32", "imad", "alu", "shared")},
    )


@cache
def assembler() -> str:
    """The version of the assembler that Triton carries."""
    path = knobs.nvidia.ptxas.path
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V([\d.]+)", said)[1]


JOBS = tuple(
    BenchJob(f"{topic}-code", partial(assembled, topic), tools=lambda: {"ptxas": assembler()})
    for topic in FACES
)


# --- the guard ------------------------------------------------------------------------------------


def stale(record: Record, topic: str) -> list[str]:
    """The passes of a topic for which the compiler is given something else than for the record."""
    face, targets = FACES[topic]
    found = {r.name: r.value for r in record.results if r.who == EQUAL}
    now = {one.name: float(source(one)) for target in targets for one in face(target)}
    gone = [name for name in found if name not in now]
    return [name for name, value in now.items() if found.get(name) != value] + gone


def differences(record: Record, results: Iterable[Measurement]) -> list[Row]:
    """What is not as the record has it, one row for each count; the source alone does not count.

    With another Triton than the record's, only what is worse by more than OTHER of it counts.
    """
    same = record.versions.get("triton") == triton.__version__
    was = {(r.name, r.who): r.value for r in record.results}
    rows = []
    for one in results:
        before = was.get((one.name, one.who), 0.0)
        worse = before - one.value if one.who in LESS else one.value - before
        far = one.value != before if same else worse > OTHER * max(before, 64.0)
        if one.who != EQUAL and far:
            rows.append((one.name, one.who, before, one.value))
    return rows


def told(rows: Sequence[Row]) -> str:
    """The differences as a table, and what to do about them."""
    lines = [f"{'kernel':<52} {'what':<20} {'was':>10} {'is':>10}"]
    for name, what, before, now in rows:
        worse = (now < before) == (what in LESS)
        word = "worse" if worse else "better"
        lines.append(f"{name:<52} {what:<20} {before:>10g} {now:>10g}  {word}")
    lines.append(
        "Worse: mend the kernel, or say in the chapter why not. Meant, or better: renew the "
        f"record with `{COMMAND} --out book/measured`."
    )
    return "\n".join(lines)
