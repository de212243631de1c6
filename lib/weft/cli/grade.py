"""`weft grade`: grade the answers to an exercise."""

import argparse
from pathlib import Path

from weft.cli.common import check_writable, write


def arguments(parser: argparse.ArgumentParser) -> None:
    """STEM, whose answers, which tests, and where the report goes."""
    parser.add_argument("stem", metavar="STEM", help="such as pipeline")
    parser.add_argument("--answers", metavar="DIR", type=Path, help="(exercises/STEM)")
    parser.add_argument("--hidden", action="store_true", help="with the hidden tests")
    parser.add_argument("--only", metavar="NAME", default="", help="tests named so; or NAME,NAME")
    parser.add_argument("--seed", metavar="N", type=int, help="what the hidden tests draw from")
    parser.add_argument("--json", metavar="F", type=Path, help="write the report there")
    parser.add_argument("--gradescope", metavar="F", type=Path, help="the same in its form")


def main(options: argparse.Namespace) -> int:
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
