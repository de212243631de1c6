"""What every command that trains the small decoder is told."""

import argparse
from pathlib import Path

from weft.nn.transformer import Config


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are ValueErrors, for the command line to print as its own."""

    def error(self, message: str) -> None:
        raise ValueError(message)


def training_parser(
    command: str,
    about: str,
    per: str,
    *,
    steps: int = 20,
    batch: int = 4,
    layers: int = 4,
    width: int = 64,
    heads: int = 4,
) -> Parser:
    """A parser with the options that all trainings have: the text, the model, the optimizer.

    `per` is whose batch --batch is; the rest is what holds where nothing is said.
    """
    parser = Parser(prog=command, description=about)
    add = parser.add_argument
    add("--text", type=Path, metavar="FILE", help="what to learn (this book's chapters)")
    add("--steps", type=int, default=steps, metavar="N", help="(%(default)s)")
    add("--batch", type=int, default=batch, metavar="B", help=f"sequences per {per} (%(default)s)")
    add("--seq", type=int, default=64, metavar="T", help="bytes in a sequence (%(default)s)")
    add("--layers", type=int, default=layers, metavar="L", help="(%(default)s)")
    add("--width", type=int, default=width, metavar="D", help="(%(default)s)")
    add("--heads", type=int, default=heads, metavar="H", help="(%(default)s)")
    add("--rate", type=float, default=1e-3, help="learning rate of Adam (%(default)s)")
    add("--seed", type=int, default=0, help="(%(default)s)")
    return parser


def decoder(options: argparse.Namespace) -> Config:
    """The model that the options ask for."""
    return Config(options.layers, options.width, options.heads, seq=options.seq)
