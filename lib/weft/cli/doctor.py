"""`weft doctor`: what this machine can run, and what is missing."""

import argparse


def arguments(_: argparse.ArgumentParser) -> None:
    """None."""


def main(_: argparse.Namespace) -> int:
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
