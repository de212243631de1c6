"""The command line: `weft draw`, `plan`, `memory`, `roofline`, `run`, `bench`, `grade`, `doctor`.

Each command imports what it needs when it is called, so that a picture is on the screen before
torch could have been loaded. What goes wrong is one line on stderr and exit code 2.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from errno import EACCES, EISDIR, ENOENT
from pathlib import Path

FAILED, INTERRUPTED, CLOSED = 2, 130, 141
MOST_ACTIONS = 1_000_000  # that a picture is made of: some fifteen seconds of work
TRAINERS = {  # `weft run TOPIC` -> the module whose main it calls
    "pipeline": "weft.run.train",
    "zero": "weft.run.zero_train",
    "offload": "weft.run.offload_train",
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line."""

    def error(self, message: str) -> None:
        """Say what is wrong and how to learn more, without the usage above it."""
        self.exit(FAILED, f"{self.prog}: {message} ({self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for name in ("stdout", "stderr"):  # None where the shell has closed it
        setattr(sys, name, getattr(sys, name) or open(os.devnull, "w"))  # noqa: SIM115 (to the end)
    options = parser().parse_args(arguments)
    try:
        code = options.command(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # somebody has read enough, `head` say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"weft {options.name}: {one_line(error)}", file=sys.stderr)
        return FAILED


def one_line(error: Exception) -> str:
    """An error as a line: what a person can act on, not where in the code it was noticed."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("weft"):
        return f"this needs {error.name}, which is not installed (weft doctor says more)"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# --- what may be said -------------------------------------------------------------------------


def parser() -> Parser:
    """All commands with their arguments."""
    top = Parser(
        prog="weft", description="Plan, draw, run and measure the training of large models."
    )
    top.add_argument("--version", action="version", version="%(prog)s " + version())
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, command, help: str, **more) -> Parser:
        made = commands.add_parser(name, help=help, description=help, **more)
        made.set_defaults(command=command, name=name)
        return made

    draw_arguments(add("draw", draw, "draw a pipeline schedule"))
    plan_arguments(add("plan", plan, "find a plan within limits"))
    memory_arguments(add("memory", memory, "say what each device keeps under ZeRO"))
    roofline_arguments(add("roofline", roofline, "place operations under the roofs of chips"))
    run_ = add("run", run, "train a small model over several ranks")
    run_.add_argument("topic", metavar="TOPIC")
    run_.add_argument("rest", nargs=argparse.REMAINDER)
    bench_ = add("bench", bench, "measure a topic on this machine, beside its peers")
    bench_.add_argument("topic", metavar="TOPIC")
    bench_.add_argument("--out", metavar="FOLDER", type=Path, help="write the records there")
    grade_arguments(add("grade", grade, "grade an exercise"))
    add("doctor", doctor, "say what this machine can run, and what is missing")
    return top


def version() -> str:
    """The version that is installed, if one is."""
    if "--version" not in sys.argv:
        return ""
    from importlib import metadata

    try:
        return metadata.version("weft")
    except metadata.PackageNotFoundError:
        return "(run from its source, not installed)"


def draw_arguments(draw_: Parser) -> None:
    """SCHEDULE P M [V], durations, and where else than on the screen the picture goes."""
    draw_.add_argument("schedule", metavar="SCHEDULE", help="such as one_f_one_b")
    draw_.add_argument("p", metavar="P", type=int, help="ranks")
    draw_.add_argument("m", metavar="M", type=int, help="microbatches")
    draw_.add_argument("v", metavar="V", type=int, nargs="?", help="virtual stages per rank")
    duration_arguments(draw_)
    draw_.add_argument(
        "--sends", choices=("buffered", "rendezvous"), default="buffered",
        help="whether a send waits for its receive (%(default)s)",
    )  # fmt: skip
    draw_.add_argument("--fuse", action="store_true", help="post neighbouring messages together")
    file_arguments(draw_)


def plan_arguments(plan_: Parser) -> None:
    """`weft plan TOPIC …`: one parser for each topic that has something to search for."""
    topics = plan_.add_subparsers(metavar="TOPIC", required=True)
    help = "find a schedule for given durations, hop latency and memory"
    pipeline = topics.add_parser("pipeline", help=help, description=help)
    pipeline.add_argument("p", metavar="P", type=int, help="ranks, with one stage each")
    pipeline.add_argument("m", metavar="M", type=int, help="microbatches")
    duration_arguments(pipeline)
    pipeline.add_argument(
        "--memory", metavar="N", type=int, required=True, help="most live activations on a rank"
    )
    file_arguments(pipeline)


def memory_arguments(memory_: Parser) -> None:
    """A model, over how many devices it is dealt out, and what a step is."""
    memory_.add_argument("shape", metavar="SHAPE", help="such as llama2-70b, or a config.json")
    for name, what in (
        ("d", "data parallel devices"),
        ("t", "tensor parallel devices"),
        ("p", "pipeline stages"),
        ("v", "virtual stages on each device"),
        ("microbatch", "sequences in a microbatch"),
    ):
        memory_.add_argument(f"--{name}", metavar="N", type=int, default=1, help=f"{what} (1)")
    memory_.add_argument(
        "--m", metavar="N", type=int, help="microbatches (enough for the pipeline)"
    )
    memory_.add_argument("--seq", metavar="N", type=int, help="tokens in a sequence (the shape's)")
    memory_.add_argument("--stage", type=int, choices=range(4), help="of ZeRO (each of them)")
    memory_.add_argument(
        "--recompute", choices=("none", "selective", "full"), default="none",
        help="what the backward computes again (%(default)s)",
    )  # fmt: skip
    memory_.add_argument(
        "--sequence-parallel", action="store_true", help="cut between the matrices by t, too"
    )
    memory_.add_argument("--chip", metavar="NAMES", help="say whether it fits h100, or h100,b200")
    memory_.add_argument(
        "--deepspeed", metavar="F", type=Path,
        help="a ds_config.json, whose stage, formats, offloading and microbatch are taken",
    )  # fmt: skip
    memory_.add_argument("--svg", metavar="F", type=Path, help="write the picture there")


def roofline_arguments(roofline_: Parser) -> None:
    """Operations, and the chips and dtypes whose roofs they are put under."""
    roofline_.add_argument(
        "operations", metavar="OPERATION", nargs="*",
        help="such as matmul:4096,4096,4096 or 8*decode:4096,32,8,128 (a few examples)",
    )  # fmt: skip
    roofline_.add_argument("--chip", metavar="NAMES", help="such as h100 or h100,a100-80 (h100)")
    roofline_.add_argument("--dtype", metavar="NAMES", help="such as bf16 or fp16,fp8 (bf16)")
    roofline_.add_argument(
        "--record", metavar="F", type=Path, help="a roof that weft bench roofline has measured"
    )
    roofline_.add_argument("--svg", metavar="F", type=Path, help="write the picture there")


def duration_arguments(command: Parser) -> None:
    """How long the actions of one virtual stage take."""
    for name, what in (("f", "forward"), ("b", "input gradient"), ("w", "weight gradient")):
        command.add_argument(
            f"--{name}", metavar="T", type=duration, default=1.0,
            help=f"time of a {what}: a number, or one for each stage, as 1,1,2,1 (1)",
        )  # fmt: skip
    command.add_argument("--c", metavar="T", type=float, default=0.0, help="time of a hop (0)")


def file_arguments(command: Parser) -> None:
    """Where a timeline can be kept."""
    command.add_argument("--svg", metavar="F", type=Path, help="write the picture there")
    command.add_argument("--trace", metavar="F", type=Path, help="write a Chrome trace there")


def grade_arguments(grade_: Parser) -> None:
    """STEM, whose answers, which tests, and where the report goes."""
    grade_.add_argument("stem", metavar="STEM", help="such as pipeline")
    grade_.add_argument("--answers", metavar="DIR", type=Path, help="(exercises/STEM)")
    grade_.add_argument("--hidden", action="store_true", help="with the hidden tests")
    grade_.add_argument("--only", metavar="NAME", default="", help="tests named so; or NAME,NAME")
    grade_.add_argument("--seed", metavar="N", type=int, help="what the hidden tests draw from")
    grade_.add_argument("--json", metavar="F", type=Path, help="write the report there")
    grade_.add_argument("--gradescope", metavar="F", type=Path, help="the same in its form")


def duration(text: str) -> float | list[float]:
    """A number, or several with commas between them."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number, nor numbers with commas"
        ) from None
    return numbers if len(numbers) > 1 else numbers[0]


# --- what is done -----------------------------------------------------------------------------


def draw(options: argparse.Namespace) -> int:
    """Simulate a schedule and show its timeline."""
    from weft.plan.comm import lower
    from weft.plan.pipeline import SCHEDULES
    from weft.plan.simulate import simulate
    from weft.terminal import working

    schedule = known("schedule", options.schedule, SCHEDULES)
    if options.v is not None and options.schedule != "interleaved":
        raise ValueError(f"{options.schedule} takes no V: only interleaved does")
    if options.fuse and options.sends == "buffered":
        raise ValueError("--fuse says how messages are posted: it needs --sends rendezvous")
    sizes = [options.p, options.m] + ([] if options.v is None else [options.v])
    check_size(options.p, options.m, options.v or schedule(1, 2).v)
    check_writable(options.svg, options.trace)
    with working(f"simulating {options.schedule}"):
        made = schedule(*sizes)
        if options.fuse:
            made = lower(made)
        times = {"f": options.f, "b": options.b, "w": options.w, "c": options.c}
        timeline = simulate(made, **times, sends=options.sends)
        picture = in_characters(timeline)
    print(picture)
    keep(timeline, options)
    return 0


def plan(options: argparse.Namespace) -> int:
    """Search for a schedule and set it beside those that have names."""
    from weft.plan.search import search
    from weft.terminal import table, working

    times = {"f": options.f, "b": options.b, "w": options.w, "c": options.c}
    check_size(options.p, options.m)
    check_writable(options.svg, options.trace)
    with working("searching"):
        found = search(options.p, options.m, **times, memory=options.memory)
        picture = in_characters(found)
        rows = [described("found", found, options.memory)]
        rows += named_schedules(options.p, options.m, times, options.memory)
    print(picture)
    table(["schedule", "makespan", "idle", "bubble rate", "most live", "fits"], rows)
    keep(found, options)
    return 0


def named_schedules(p: int, m: int, times: dict, memory: int) -> list[list[str]]:
    """A row for each schedule with one stage per rank that these sizes allow."""
    from weft.plan.pipeline import SCHEDULES
    from weft.plan.simulate import simulate

    rows = []
    for name in ("gpipe", "one_f_one_b", "zb_h1", "zb_h2"):
        try:
            made = SCHEDULES[name](p, m)
        except ValueError:
            continue  # not every schedule exists for every p and m
        rows.append(described(name, simulate(made, **times), memory))
    return rows


def described(name: str, timeline, memory: int) -> list[str]:
    """A schedule in a row of the table that `weft plan pipeline` prints."""
    live = max(timeline.peak_live)
    shares = (
        f"{share:.2%}".replace("%", " %") for share in (timeline.bubble, timeline.bubble_rate)
    )
    return [name, f"{timeline.makespan:g}", *shares, str(live), "yes" if live <= memory else "no"]


def memory(options: argparse.Namespace) -> int:
    """Print what the fullest device keeps of a model, under each stage of ZeRO."""
    from weft.plan.hardware import CHIPS
    from weft.plan.memory import STAGES, activations, model_states, parameters
    from weft.plan.memory_config import of_deepspeed, places
    from weft.terminal import table

    check_writable(options.svg)
    shape, t, p, d = model_shape(options.shape, options.seq), options.t, options.p, options.d
    chips = [known("chip", name, CHIPS) for name in (options.chip or "").split(",") if name]
    params, microbatch, first, said = parameters(shape, t, p), options.microbatch, "ZeRO", []
    if options.deepspeed:
        if options.stage is not None:
            raise ValueError("--stage and --deepspeed both name a stage: give one of them")
        settings = read_json(options.deepspeed, of_deepspeed)
        first, said, states = "where", settings.lines, places(settings, params, d)
        microbatch = settings.microbatch or microbatch
    else:
        stages = STAGES if options.stage is None else [options.stage]
        states = {str(stage): model_states(params, d, stage) for stage in stages}
    cuts = {"t": t, "p": p, "m": 2 * p if options.m is None else options.m, "v": options.v}
    cuts |= {"sequence_parallel": options.sequence_parallel, "recompute": options.recompute}
    between, rows, bars = activations(shape, microbatch, **cuts), [], {}
    for name, s in states.items():
        passed = 0 if name in ("cpu", "nvme") else between
        kept = s.weights, s.gradients, s.optimizer, passed, s.total + passed
        fits = ["yes" if kept[-1] <= chip.memory else "no" for chip in chips]
        fits = [""] * len(chips) if name in ("cpu", "nvme") else fits
        rows.append([name, *(f"{nbytes / 2**30:.2f}" for nbytes in kept), *fits])
        if name not in ("cpu", "nvme"):
            bars[f"stage {name}" if first == "ZeRO" else name] = kept[:-1]
    for line in said:
        print(line)
    print(f"{options.shape}: {shape.params:,} parameters, {params:,} of them on the fullest device")
    columns = [first, "weights", "gradients", "optimizer", "activations", "total"]
    title = f"GiB for each of {d * t * p:,} devices: d = {d}, t = {t}, p = {p}"
    table([*columns, *(f"fits {chip.name}" for chip in chips)], rows, title=title)
    if options.svg:
        from weft.plan.draw_memory import bars_svg

        about = f"{options.shape}: one of {d * t * p:,} devices, d = {d}, t = {t}, p = {p}"
        write(options.svg, bars_svg(bars, chips, about, binary=True) + "\n")
    return 0


def model_shape(name: str, seq: int | None):
    """The shape of that name, or in that config.json; with sequences of `seq` tokens, if given."""
    from dataclasses import replace

    from weft.plan.shape import SHAPES
    from weft.plan.shape_config import of_config

    path = Path(name)
    if name in SHAPES:
        shape = SHAPES[name]
    elif path.suffix != ".json" and not path.is_file():
        names = ", ".join(SHAPES)
        raise ValueError(f"unknown shape {name!r}: choose from {names}, or give a config.json")
    else:
        shape = read_json(path, of_config)
    if seq is None:
        return shape
    learned = shape.seq if shape.positions is None else shape.positions
    return replace(shape, seq=seq, positions=learned)


def roofline(options: argparse.Namespace) -> int:
    """Draw roofs with operations under them, and print what each can reach."""
    from weft.plan.draw_roofline import of_record, svg, text
    from weft.plan.hardware import CHIPS
    from weft.plan.roofline import EXAMPLES, operation
    from weft.terminal import width

    check_writable(options.svg)
    points, roofs, rates = {}, [], {}
    if options.record:
        from weft.bench.record import read

        points, roofs, rates = of_record(read(options.record), options.dtype)
    dtypes = [dtype for _, dtype in roofs] or (options.dtype or "bf16").split(",")
    if options.chip or not options.record:
        chips = [known("chip", name, CHIPS) for name in (options.chip or "h100").split(",")]
        roofs += [(chip, dtype) for chip in chips for dtype in dtypes]
    for name in options.operations or (() if options.record else EXAMPLES):
        points[name] = operation(name, dtypes[0])
    print(text(points, roofs, rates, width()))
    if options.svg:
        write(options.svg, svg(points, roofs, rates) + "\n")
    return 0


def run(options: argparse.Namespace) -> int:
    """Hand over to a topic's own training program."""
    from importlib import import_module

    trainer = import_module(known("topic", options.topic, TRAINERS))
    return trainer.main(options.rest) or 0


def bench(options: argparse.Namespace) -> int:
    """Run a topic's benchmarks, print them, and write their records if a folder is named."""
    from importlib import import_module
    from pkgutil import iter_modules

    import weft.bench
    from weft.terminal import working

    topics = {m.name: f"weft.bench.{m.name}" for m in iter_modules(weft.bench.__path__)}
    topics.pop("record", None)
    module = import_module(known("topic", options.topic, topics))
    if options.out:  # a folder that cannot be is better found out before an hour of measuring
        options.out.mkdir(parents=True, exist_ok=True)
    with working(f"measuring {options.topic}") as progress:
        records = module.bench(progress)
    for record in records:
        show(record)
        if options.out:
            print(f"written: {record.write(options.out)}")
    return 0


def show(record) -> None:
    """A record as a table: the medians, and how far apart the samples lay."""
    from weft.terminal import table

    rows = []
    for r in record.results:
        spread = f"{min(r.samples):.4g} – {max(r.samples):.4g}"
        rows.append([r.name, r.who, f"{r.value:.4g}", r.unit, spread, str(len(r.samples))])
    table(["what", "who", "median", "unit", "from – to", "samples"], rows, title=record.title)
    machine = record.machine
    chip = machine.get("gpu", machine.get("cpu", machine["chip"]))
    print(", ".join([str(chip), *(f"{k} {v}" for k, v in record.versions.items()), record.date]))


def grade(options: argparse.Namespace) -> int:
    """Grade the answers to an exercise; 0 for full score, 1 for less."""
    from weft.grade import check
    from weft.terminal import working

    asked = {"answers": options.answers, "hidden": options.hidden, "only": options.only}
    check_writable(options.json, options.gradescope)
    with working(f"grading {options.stem}") as progress:
        result = check(options.stem, **asked, seed=options.seed, progress=progress)
    print(result)
    for path, report in ((options.json, "json"), (options.gradescope, "gradescope")):
        if path:
            write(path, getattr(result, report)())
    return 0 if result.full else 1


def doctor(options: argparse.Namespace) -> int:
    """Print what this machine can run; 0 unless something is missing without which nothing runs."""
    from weft.doctor import examine
    from weft.terminal import table, working

    with working("looking around"):
        findings = examine()
    table(["", "what", "found"], [[f.mark, f.what, f.found] for f in findings])
    for finding in findings:
        if finding.takes:
            print(f"{finding.what}: {finding.takes}")
    return 0 if all(f.there for f in findings if f.needed) else 1


# --- what several of them do ------------------------------------------------------------------


def read_json(path: Path, meaning):
    """What `meaning` makes of a file of JSON; a complaint that names the file."""
    try:
        return meaning(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:  # JSON's own, too
        raise ValueError(f"{path}: {error}") from error


def known(what: str, name: str, choices):
    """What a name stands for, or a complaint that lists the names there are."""
    if name not in choices:
        raise ValueError(f"unknown {what} {name!r}: choose from {', '.join(choices)}")
    return choices[name]


def in_characters(timeline) -> str:
    """A timeline as wide as the terminal, painted where it can be."""
    from weft.plan.draw import text
    from weft.terminal import has_color, width

    return text(timeline, width=width(), color=has_color())


def keep(timeline, options: argparse.Namespace) -> None:
    """Write the files that were asked for, and say so."""
    if options.svg:
        from weft.plan.draw import svg

        write(options.svg, svg(timeline) + "\n")
    if options.trace:
        write(options.trace, json.dumps(timeline.to_perfetto()) + "\n")


def check_size(p: int, m: int, v: int = 1) -> None:
    """Refuse what would not end while somebody waits; sizes below 1 are the schedule's to refuse.

    Every microbatch has a forward and a backward, or two halves of one, on every virtual stage.
    """
    actions = 2 * p * m * v
    if min(p, m, v) > 0 and actions > MOST_ACTIONS:
        raise ValueError(
            f"p = {p}, m = {m} and v = {v} make {actions:,} actions or more, must be at most "
            f"{MOST_ACTIONS:,} here: weft.plan.simulate has no such limit"
        )


def check_writable(*paths: Path | None) -> None:
    """Raise before the work what writing its result would raise after it."""
    for path in filter(None, paths):
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
        if not path.parent.is_dir():
            raise FileNotFoundError(ENOENT, f"there is no folder {path.parent}", str(path))
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(EACCES, os.strerror(EACCES), str(path))


def write(path: Path, text: str) -> None:
    """Write a file and say where."""
    path.write_text(text, encoding="utf-8")
    print(f"written: {path}")
