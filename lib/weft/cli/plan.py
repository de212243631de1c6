"""`weft plan`: search for a schedule within limits."""

import argparse

from weft.cli.common import check_writable
from weft.cli.timelines import check_size, duration_arguments, file_arguments, in_characters, keep


def arguments(parser: argparse.ArgumentParser) -> None:
    """`weft plan TOPIC …`: one parser for each topic that has something to search for."""
    topics = parser.add_subparsers(metavar="TOPIC", required=True)
    help = "find a schedule for given durations, hop latency and memory"
    pipeline = topics.add_parser("pipeline", help=help, description=help)
    pipeline.add_argument("p", metavar="P", type=int, help="ranks, with one stage each")
    pipeline.add_argument("m", metavar="M", type=int, help="microbatches")
    duration_arguments(pipeline)
    pipeline.add_argument(
        "--memory", metavar="N", type=int, required=True, help="most live activations on a rank"
    )
    file_arguments(pipeline)


def main(options: argparse.Namespace) -> int:
    """Search for a schedule and set it beside those that have names."""
    from weft.plan.pipeline.search import search
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
