"""`weft run`: train a small model over several ranks."""

import argparse
import os
from contextlib import nullcontext

from weft.cli.common import at_once, known

TRAINERS = {  # `weft run TOPIC` -> the module whose main it calls, and what it does
    "pipeline": (
        "weft.run.train",
        "through a pipeline, by any schedule",
    ),
    "zero": ("weft.run.train.zero", "under a stage of ZeRO, with checkpoints to go on from"),
    "offload": ("weft.run.train.offload", "with states in files, within a budget of memory"),
    "linear": ("weft.run.train.linear", "with linear attention, its sequences over ranks"),
    "ring": ("weft.run.train.ring", "with sequences over ranks: ring attention and its like"),
    "experts": ("weft.run.train.experts", "with experts over ranks, their balance shown"),
    "tensor": ("weft.run.train.tensor", "with every matrix over ranks, and tokens between them"),
    "composing": ("weft.run.train.composing", "under a layout: several of these at once"),
}
EXAMPLES = """\
examples:
  weft run pipeline --schedule zb_h1               over four processes
  weft run zero --stage 3 --checkpoint kept        each keeps a share; goes on where it was ended
  weft run offload --budget 48                     states in files
  weft run linear --rule delta                     each process has a part of every sequence
  weft run ring --n 4 --seq 256                    and attention is softmax's
  weft run experts --e 4 --balance 0               each has experts; routers may collapse
  weft run tensor --t 4 --sequence-parallel        each has a quarter of every matrix
  weft run composing --p 2 --t 2 --d 2             each of eight has a part of all of it"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """TOPIC, and whatever its own program takes."""
    topics = "".join(f"\n  {topic:10} {what}" for topic, (_, what) in TRAINERS.items())
    parser.add_argument("topic", metavar="TOPIC", help=f"one of {', '.join(TRAINERS)}")
    parser.add_argument(
        "rest", metavar="OPTION", nargs=argparse.REMAINDER,
        help="options of the topic: weft run TOPIC --help lists them",
    )  # fmt: skip
    parser.epilog = f"topics:{topics}\n\n{parser.epilog}"


def main(options: argparse.Namespace) -> int:
    """Call the main of a topic's training; with a pipeline, it gets what draws its last step."""
    from importlib import import_module

    from weft.terminal import working

    module, _ = known("topic", options.topic, TRAINERS)
    if {"-h", "--help"} & set(options.rest):
        from weft.run.train import PARSERS

        PARSERS[options.topic]().print_help()
        return 0
    alone = os.environ.get("RANK", "0") == "0"  # torchrun's other ranks say nothing
    with at_once(), working("loading torch") if alone else nullcontext():
        trainer = import_module(module)
    if options.topic in ("pipeline", "composing"):
        from weft.draw.pipeline import text

        return trainer.main(options.rest, picture=text)
    return trainer.main(options.rest)
