"""The options of `weft run`, which say what there is to choose before torch has to be loaded."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from weft.plan.linear import DECODER_RULES, METHODS
from weft.plan.pipeline import SCHEDULES
from weft.plan.ring import LAYOUTS
from weft.plan.ring import METHODS as RING_METHODS
from weft.plan.shape import RECOMPUTE
from weft.plan.zero import BUCKET

STEPS, BATCH, RATE, SEED = 20, 4, 1e-3, 0
CLOCK_NAMES = ("wall", "cpu", "unit")
EXAMPLES = {
    "pipeline": """
examples:
  weft run pipeline --schedule zb_h1 --timeline      train, and draw the last step
  weft run pipeline --trace step.json                look at that step in ui.perfetto.dev
  torchrun --nproc-per-node 4 -m weft run pipeline   be a rank that something else starts""",
    "zero": """
examples:
  weft run zero --stage 3 --ranks 3                  each rank keeps a third of everything
  weft run zero --checkpoint kept --steps 20         keep checkpoints
  weft run zero --checkpoint kept --steps 40         go on: 40 counts those 20 as well""",
    "offload": """
examples:
  weft run offload --budget 48                       states in files, 48 MiB of them in memory
  weft run offload --in-memory                       the same training as usual""",
    "linear": """
examples:
  weft run linear --ranks 4                          each has a quarter of every sequence
  weft run linear --rule delta --method gather       another rule, and another way to tell states
  weft run linear --ranks 1                          the same training in one process""",
    "ring": """
examples:
  weft run ring --n 4 --seq 256                      each has a quarter of every sequence
  weft run ring --method ulysses                     heads are dealt out, by all-to-all
  weft run ring --layout contiguous --n 3 --seq 100  parts need not be equal
  weft run ring --n 1                                the same training in one process""",
    "experts": """
examples:
  weft run experts --e 4                             each has a quarter of the experts
  weft run experts --balance 0                       routers do as they like, and collapse
  weft run experts --balance 0 --bias 0.01           balanced by a bias, without a loss
  weft run experts --factor 1                        what finds its expert full is dropped
  weft run experts --e 1                             the same training in one process""",
    "tensor": """
examples:
  weft run tensor --t 4                              each has a quarter of every matrix
  weft run tensor --t 4 --sequence-parallel          and of the tokens between them
  weft run tensor --t 4 --overlap                    which travel while matmuls go on
  weft run tensor --t 3 --heads 4                    what does not divide is cut all the same
  weft run tensor --t 1                              the same training in one process""",
    "composing": """
examples:
  weft run composing --p 2 --t 2 --d 2 --schedule zb_h1 --zero 1       eight processes
  weft run composing --t 2 --c 2 --d 2 --sequence-parallel             sequences over ranks, too
  weft run composing --p 2 --d 4 --e 4 --experts 8                     experts over data ranks
  weft run composing --p 2 --d 2 --checkpoint kept                     keep a checkpoint, and
  weft run composing --t 4 --zero 3 --checkpoint kept --steps 40       go on under another layout
  torchrun --nnodes 2 --nproc-per-node 4 ... -m weft run composing --p 2 --t 2 --d 2""",
}


def training_parser(
    topic: str,
    about: str,
    per: str,
    *,
    steps: int = STEPS,
    batch: int = BATCH,
    layers: int = 4,
    width: int = 64,
    heads: int = 4,
) -> argparse.ArgumentParser:
    """A parser with the options of all trainings; for what is wrong with them it raises ValueError.

    `per` is whose batch --batch is; the numbers are the defaults of the options of their names.
    """
    parser = argparse.ArgumentParser(
        prog=f"weft run {topic}", description=about, epilog=EXAMPLES[topic],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.error = _refuse  # where it would end the process: a notebook may have called
    add = parser.add_argument
    add("--text", type=Path, metavar="FILE", help="what to learn (the book's chapters)")
    kept = topic in ("zero", "composing")
    counted = "in all, those of a checkpoint included" if kept else "in all"
    add("--steps", type=int, default=steps, metavar="N", help=f"{counted} (%(default)s)")
    add("--batch", type=int, default=batch, metavar="B", help=f"sequences per {per} (%(default)s)")
    add("--seq", type=int, default=64, metavar="T", help="bytes in a sequence (%(default)s)")
    add("--layers", type=int, default=layers, metavar="L", help="blocks (%(default)s)")
    add("--width", type=int, default=width, metavar="D", help="of the model (%(default)s)")
    add("--heads", type=int, default=heads, metavar="H", help="of attention (%(default)s)")
    add("--rate", type=float, default=RATE, help="learning rate of Adam (%(default)s)")
    add("--seed", type=int, default=SEED, help="of weights and batches (%(default)s)")
    return parser


def add_ranks(parser: argparse.ArgumentParser, ranks: int, metavar: str, *short: str) -> None:
    """The options of a training on several processes; `short` is another name of --ranks."""
    add = parser.add_argument
    add("--ranks", *short, type=int, default=ranks, metavar=metavar, help="processes (%(default)s)")
    add("--timeout", type=float, default=3600.0, help="seconds until it is ended (%(default)s)")


def pipeline_parser() -> argparse.ArgumentParser:
    """`weft run pipeline`."""
    about = "Train the small byte-level decoder through a pipeline."
    parser = training_parser("pipeline", about, per="microbatch", layers=8)
    add_ranks(parser, 4, metavar="P")
    add = parser.add_argument
    add(
        "--schedule", choices=sorted(SCHEDULES), default="one_f_one_b",
        help="who does what when (%(default)s)",
    )  # fmt: skip
    add("--microbatches", type=int, default=8, metavar="M", help="in a step (%(default)s)")
    add("--virtual", type=int, metavar="V", help="stages per rank of interleaved (2)")
    add("--clock", choices=CLOCK_NAMES, default="wall", help="that measures (%(default)s)")
    add("--timeline", action="store_true", help="draw the last step as it was measured")
    add("--trace", type=Path, metavar="FILE", help="write the last step for ui.perfetto.dev")
    return parser


def zero_parser() -> argparse.ArgumentParser:
    """`weft run zero`."""
    about = "Train the small byte-level decoder under a stage of ZeRO."
    parser = training_parser("zero", about, per="rank")
    add_ranks(parser, int(os.environ.get("WORLD_SIZE", 2)), metavar="N")  # torchrun's
    add = parser.add_argument
    add("--stage", type=int, default=2, metavar="S", help="0, 1, 2 or 3 (%(default)s)")
    add("--bucket", type=int, default=BUCKET, help="elements sent together (%(default)s)")
    add("--checkpoint", type=Path, metavar="FOLDER", help="keep one there, and go on from it")
    add("--every", type=int, default=10, metavar="K", help="steps between two (%(default)s)")
    return parser


def offload_parser() -> argparse.ArgumentParser:
    """`weft run offload`."""
    about = "Train a decoder whose states are larger than the memory that they get."
    model = {"layers": 12, "width": 320, "heads": 5}
    parser = training_parser("offload", about, per="step", steps=4, batch=2, **model)
    add = parser.add_argument
    add(
        "--budget", type=int, default=48, metavar="MIB",
        help="memory for states; activations and the program are not counted (%(default)s)",
    )  # fmt: skip
    add("--folder", type=Path, help="where a folder for the states is made (the system's choice)")
    add("--threads", type=int, default=4, metavar="N", help="that read and write (%(default)s)")
    add("--in-memory", action="store_true", help="train as usual, with all states in memory")
    add("--json", action="store_true", help="print the outcome as JSON, and nothing else")
    return parser


def linear_parser() -> argparse.ArgumentParser:
    """`weft run linear`."""
    about = "Train a decoder with linear attention whose sequences lie over ranks."
    parser = training_parser("linear", about, per="step")
    add_ranks(parser, int(os.environ.get("WORLD_SIZE", 4)), metavar="N")  # torchrun's
    add = parser.add_argument
    add("--rule", choices=[*DECODER_RULES], default="gate", help="how states change (%(default)s)")
    add("--method", choices=METHODS, default="scan", help="how states travel (%(default)s)")
    return parser


def ring_parser() -> argparse.ArgumentParser:
    """`weft run ring`."""
    about = "Train a decoder whose sequences lie over ranks, and whose attention is of the whole."
    parser = training_parser("ring", about, per="step")
    add_ranks(parser, int(os.environ.get("WORLD_SIZE", 4)), "N", "--n")  # torchrun's
    add = parser.add_argument
    add("--layout", choices=LAYOUTS, default="zigzag", help="who has which tokens (%(default)s)")
    add("--method", choices=RING_METHODS, default="ring", help="what is sent (%(default)s)")
    return parser


def experts_parser() -> argparse.ArgumentParser:
    """`weft run experts`."""
    about = "Train a decoder with experts that lie over ranks, each with its own sequences."
    parser = training_parser("experts", about, per="step", batch=8, layers=2)
    add_ranks(parser, int(os.environ.get("WORLD_SIZE", 4)), "E", "--e")  # torchrun's
    add = parser.add_argument
    add("--experts", type=int, default=8, metavar="N", help="in every 2nd block (%(default)s)")
    add("--k", type=int, default=1, help="of them for a token (%(default)s)")
    add("--factor", type=float, metavar="F", help="of an expert's capacity (nothing is dropped)")
    add("--balance", type=float, default=0.01, metavar="A", help="of that loss (%(default)s)")
    add("--bias", type=float, default=0.0, metavar="G", help="step of a bias (%(default)s)")
    add("--json", action="store_true", help="print losses and choices as JSON, and nothing else")
    return parser


def tensor_parser() -> argparse.ArgumentParser:
    """`weft run tensor`."""
    about = "Train a decoder whose matrices lie over ranks, and the tokens between them if asked."
    parser = training_parser("tensor", about, per="step")
    add_ranks(parser, int(os.environ.get("WORLD_SIZE", 4)), "T", "--t")  # torchrun's
    add = parser.add_argument
    add("--sequence-parallel", action="store_true", help="cut norms' tokens too; T must divide")
    add("--overlap", action="store_true", help="send beside matmuls; it is sequence-parallel")
    return parser


def composing_parser() -> argparse.ArgumentParser:
    """`weft run composing`."""
    about = "Train a decoder over pipeline, tensor, data, context and expert ranks at once."
    parser = training_parser("composing", about, per="step", batch=16)
    add = parser.add_argument
    add("--p", type=int, default=1, metavar="P", help="ranks of a pipeline (%(default)s)")
    add("--t", type=int, default=1, metavar="T", help="ranks that share matrices (%(default)s)")
    add("--d", type=int, default=1, metavar="D", help="copies that share a batch (%(default)s)")
    add("--c", type=int, default=1, metavar="C", help="ranks that share sequences (%(default)s)")
    add("--e", type=int, default=1, metavar="E", help="of d * c, that share experts (%(default)s)")
    add("--v", type=int, default=1, metavar="V", help="stages of each rank (%(default)s)")
    add("--microbatch", type=int, default=1, metavar="B", help="sequences in one (%(default)s)")
    add("--schedule", choices=sorted(SCHEDULES), default="one_f_one_b", help="(%(default)s)")
    add("--zero", type=int, default=0, metavar="S", help="stage over d * c ranks (%(default)s)")
    add("--sequence-parallel", action="store_true", help="cut norms' tokens over t; T must divide")
    add("--recompute", choices=RECOMPUTE, default="none", help="in backward (%(default)s)")
    add("--clip", type=float, metavar="NORM", help="how long the whole gradient may be")
    add("--experts", type=int, default=0, metavar="N", help="in every 2nd block (none)")
    add("--k", type=int, default=1, help="of them for a token (%(default)s)")
    add("--checkpoint", type=Path, metavar="FOLDER", help="go on from there, and keep one at last")
    add("--clock", choices=CLOCK_NAMES, default="wall", help="that measures (%(default)s)")
    add("--timeout", type=float, default=3600.0, help="seconds until it is ended (%(default)s)")
    return parser


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "pipeline": pipeline_parser,
    "zero": zero_parser,
    "offload": offload_parser,
    "linear": linear_parser,
    "ring": ring_parser,
    "experts": experts_parser,
    "tensor": tensor_parser,
    "composing": composing_parser,
}


def _refuse(message: str) -> None:
    raise ValueError(message)
