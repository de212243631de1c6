"""What the book's programs print: python lib/tests/support/transcript.py zero writes zero.txt.

A transcript is commands as a reader types them in book/programs, each after `$ `, with what they
print below. It says itself how it is made anew.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "book/programs"
LIGHT = Path(__file__).parent / "light"  # on PYTHONPATH: without imports that nobody uses
PROMPT = "$ "
UNITS = "ns|us|µs|ms|s|GB/s|TFLOP/s|tokens/s|times|FLOPs per byte at the ridge"
MEASURED = re.compile(rf" *[\d.,]+(?= ?(?:{UNITS})\b)")  # with its column's blanks
SECONDS = 120


def steps(transcript: str) -> Iterator[tuple[str, str]]:
    """The commands of a transcript, each with what it printed."""
    for part in re.split(rf"^{re.escape(PROMPT)}", transcript, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def printed_by(command: str) -> str:
    """What a command prints in the folder of programs, where there is no GPU and no weft.

    Triton interprets its kernels, and torchrun finds a free port by itself. Raises RuntimeError
    with what it said where it fails or takes more than SECONDS.
    """
    name, *arguments = command.split()
    runs = {"python": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}
    if name == "torchrun":
        arguments = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", *arguments]
    environment = os.environ | {"PYTHONPATH": str(LIGHT), "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    try:
        done = subprocess.run(
            [*runs[name], *arguments],
            cwd=PROGRAMS,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{command} takes more than {SECONDS} s") from None
    if done.returncode:
        raise RuntimeError(f"{command} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def comparable(printed: str) -> list[str]:
    """Its lines, with # for what was measured."""
    return [MEASURED.sub("#", line).rstrip() for line in printed.rstrip().splitlines()]


def written(transcript: str) -> str:
    """The transcript, made anew."""
    parts = (f"{PROMPT}{c}\n{printed_by(c).rstrip()}\n" for c, _ in steps(transcript))
    return "\n".join(parts)


if __name__ == "__main__":
    for stem in sys.argv[1:]:
        path = PROGRAMS / f"{stem}.txt"
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
