"""`weft plan`: search for a schedule within limits."""

import argparse

from weft.cli import cluster
from weft.cli.common import check_writable, json_argument, known, model_shape, write_json
from weft.cli.timelines import check_size, duration_arguments, file_arguments, in_characters, keep

EXAMPLES = """\
examples:
  weft plan pipeline 4 12 --f 10 --b 12 --w 8 --c 1 --memory 4
  weft plan pipeline 4 8 --config config.json --chip h200 --d 16
  weft plan cluster llama2-70b --chip h100 --devices 64 --batch 512
  weft plan cluster config.json --cluster selene --batch 1536 --config megatron
  weft plan cluster --megatron "$(cat train.sh)" --chip h100"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`weft plan TOPIC …`: one parser for each topic that has something to search for."""
    topics = parser.add_subparsers(metavar="TOPIC", required=True)
    help = "find a schedule for given durations, hop latency and memory"
    pipeline = topics.add_parser("pipeline", help=help, description=help)
    pipeline.add_argument("p", metavar="P", type=int, help="ranks, with one stage each")
    pipeline.add_argument("m", metavar="M", type=int, help="microbatches")
    duration_arguments(pipeline)
    pipeline.add_argument("--memory", metavar="N", type=int, help="most live activations on a rank")
    pipeline.add_argument(
        "--config", metavar="SHAPE",
        help="a model such as llama2-70b, or a config.json: durations in ms from the roofline of "
        "--chip, and --memory from what it has left",
    )  # fmt: skip
    for name, default, what in (
        ("chip", "h100", "whose roof and memory count"),
        ("dtype", "bf16", "in which it computes"),
        ("link", "nvlink4", "between stages"),
    ):
        pipeline.add_argument(
            f"--{name}", metavar="NAME", default=default, help=f"with --config: {what} ({default})"
        )
    for name, default, what in (
        ("microbatch", 1, "sequences in a microbatch (1)"),
        ("d", 1, "devices that share a stage's states (1)"),
        ("zero", 1, "stage of ZeRO (1)"),
        ("seq", None, "tokens in a sequence (the model's longest, within reason)"),
    ):
        pipeline.add_argument(
            f"--{name}", metavar="N", type=int, default=default, help=f"with --config: {what}"
        )
    file_arguments(pipeline)
    json_argument(pipeline)
    layouts = topics.add_parser("cluster", help=cluster.HELP, description=cluster.HELP)
    cluster.arguments(layouts)
    layouts.set_defaults(command=cluster.main)


def main(options: argparse.Namespace) -> int:
    """Search for a schedule and set it beside those that have names."""
    from weft.plan.pipeline.search import search
    from weft.terminal import table, working

    times = {"f": options.f, "b": options.b, "w": options.w, "c": options.c}
    check_size(options.p, options.m)
    check_writable(options.svg, options.trace, options.json)
    memory, lines = options.memory, []
    if options.config:
        times, room, lines = of_model(options)
        memory = room if memory is None else memory
    if memory is None:
        raise ValueError("--memory is missing: give it, or a model by --config")
    with working("searching"):
        found = search(options.p, options.m, **times, memory=memory)
        picture = in_characters(found)
        timelines = {"found": found} | named_schedules(options.p, options.m, times)
    for line in lines:
        print(line)
    print(picture)
    rows = [described(*each, memory) for each in timelines.items()]
    table(["schedule", "makespan", "idle", "bubble rate", "most live", "fits"], rows)
    keep(found, options)
    numbers = {
        name: {"makespan": t.makespan, "bubble": t.bubble, "live": t.peak_live}
        for name, t in timelines.items()
    }
    write_json(options.json, {"memory": memory, "schedules": numbers})
    return 0


def of_model(options: argparse.Namespace) -> tuple[dict, int, list[str]]:
    """Durations in ms, how many live activations have room, and lines that say how both came."""
    from weft.plan.hardware import CHIPS, LINKS
    from weft.plan.memory import activations, model_states, parameters, passing
    from weft.plan.roofline import stage_seconds
    from weft.plan.units import binary

    if (options.f, options.b, options.w, options.c) != (1.0, 1.0, 1.0, 0.0):
        raise ValueError("--config and --f, --b, --w or --c both say durations: give one of them")
    model, p, micro = model_shape(options.config, options.seq), options.p, options.microbatch
    chip, link = known("chip", options.chip, CHIPS), known("link", options.link, LINKS)
    shape = model.shape
    times = stage_seconds(shape, p, micro, chip, options.dtype)
    in_ms = {name: [round(1e3 * time, 3) for time in each] for name, each in times.items()}
    hop = 2 * micro * shape.seq * shape.width
    in_ms["c"] = round(1e3 * (link.latency + hop / link.bandwidth), 3)
    states = model_states(parameters(shape, p=p), options.d, options.zero).total
    how = {"p": p, "m": 1, "attention": "flash"}
    one = activations(shape, micro, **how)
    held = passing(shape, micro, options.zero, **how).total
    room = int((chip.memory - states - held) // one)
    needs = f"states {binary(states)}, passing {binary(held)}, {binary(one)} a microbatch"
    if room < 1:
        raise ValueError(
            f"{options.config} does not fit {p} of {chip.name}, each {binary(chip.memory)}: {needs}"
        )
    lines = [
        *model.notes,
        f"assumed: sequences of {shape.seq:,} tokens{model.cut}; microbatches of {micro}; "
        f"FlashAttention; nothing recomputed; ZeRO {options.zero} over d = {options.d}",
        f"fullest rank: {needs}: {room} fit",
        f"ms by the roofline of {chip.name}, {options.dtype}; a hop over {link.name} "
        f"{in_ms['c']:g}",
    ]
    lines += [f"  {name}: {' '.join(f'{ms:g}' for ms in in_ms[name])}" for name in "fbw"]
    return in_ms, room, lines


def named_schedules(p: int, m: int, times: dict) -> dict:
    """A timeline for each schedule with one stage per rank that these sizes allow, by its name."""
    from weft.plan.pipeline import SCHEDULES
    from weft.plan.simulate import simulate

    made = {}
    for name in ("gpipe", "one_f_one_b", "zb_h1", "zb_h2"):
        try:
            plan = SCHEDULES[name](p, m)
        except ValueError:
            continue  # not every schedule exists for every p and m
        made[name] = simulate(plan, **times)
    return made


def described(name: str, timeline, memory: int) -> list[str]:
    """A schedule in a row of the table that `weft plan pipeline` prints."""
    live = max(timeline.peak_live)
    shares = (
        f"{share:.2%}".replace("%", " %") for share in (timeline.bubble, timeline.bubble_rate)
    )
    return [name, f"{timeline.makespan:g}", *shares, str(live), "yes" if live <= memory else "no"]
