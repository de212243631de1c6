"""`weft memory`: what the fullest device keeps of a model."""

import argparse
from pathlib import Path

from weft.cli.common import check_writable, known, read_json, write


def arguments(parser: argparse.ArgumentParser) -> None:
    """A model, over how many devices it is dealt out, and what a step is."""
    parser.add_argument("shape", metavar="SHAPE", help="such as llama2-70b, or a config.json")
    for name, what in (
        ("d", "data parallel devices"),
        ("t", "tensor parallel devices"),
        ("p", "pipeline stages"),
        ("v", "virtual stages on each device"),
        ("microbatch", "sequences in a microbatch"),
    ):
        parser.add_argument(f"--{name}", metavar="N", type=int, default=1, help=f"{what} (1)")
    parser.add_argument("--m", metavar="N", type=int, help="microbatches (enough for the pipeline)")
    parser.add_argument("--seq", metavar="N", type=int, help="tokens in a sequence (the shape's)")
    parser.add_argument("--stage", type=int, choices=range(4), help="of ZeRO (each of them)")
    parser.add_argument(
        "--recompute", choices=("none", "selective", "full"), default="none",
        help="what the backward computes again (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--sequence-parallel", action="store_true", help="cut between the matrices by t, too"
    )
    parser.add_argument("--chip", metavar="NAMES", help="say whether it fits h100, or h100,b200")
    parser.add_argument(
        "--deepspeed", metavar="F", type=Path,
        help="a ds_config.json, whose stage, formats, offloading and microbatch are taken",
    )  # fmt: skip
    parser.add_argument("--svg", metavar="F", type=Path, help="write the picture there")


def main(options: argparse.Namespace) -> int:
    """Print what the fullest device keeps of a model, under each stage of ZeRO."""
    from weft.plan.hardware import CHIPS
    from weft.plan.memory import STAGES, activations, model_states, of_deepspeed, parameters, places
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
        from weft.draw.memory import bars_svg

        about = f"{options.shape}: one of {d * t * p:,} devices, d = {d}, t = {t}, p = {p}"
        write(options.svg, bars_svg(bars, chips, about, binary=True) + "\n")
    return 0


def model_shape(name: str, seq: int | None):
    """The shape of that name, or in that config.json; with sequences of `seq` tokens, if given."""
    from dataclasses import replace

    from weft.plan.shape import SHAPES, of_config

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
