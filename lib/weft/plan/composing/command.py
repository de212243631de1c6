"""A command line as people paste it: words of a shell script, and what its launcher says."""

import re
import shlex
from collections.abc import Sequence

from weft.plan.arguments import instance, row, whole

DEVICES = "nproc-per-node", "num-gpus"  # of a node: torchrun's name and DeepSpeed's
NODES = "nnodes", "num-nodes"
# What else torchrun takes; `python -m torch.distributed.run --help`.
LAUNCHERS = """
    nproc-per-node num-gpus nnodes num-nodes rdzv-backend rdzv-endpoint rdzv-id rdzv-conf
    standalone max-restarts monitor-interval start-method role module no-python run-path log-dir
    redirects tee local-ranks-filter node-rank master-addr master-port local-addr
"""
OF_LAUNCHER = frozenset(LAUNCHERS.split())
ENDS = re.compile(r"\|\|?|&|\d?>.*|&>.*|<.*")  # words after which nothing is an argument
ARITHMETIC = re.compile(r"\$\(\(([^()]*)\)\)")
VARIABLE = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?::?-([^}]*))?\}|\$(\w+)")
WHOLE_ARRAY = re.compile(r'"\$\{(\w+)\[[@*]\]\}"')
ASSIGNED = re.compile(r"\s*(?:export\s+|local\s+|declare\s+(?:-\w+\s+)*)?(\w+)(\+?)=")


def words(line: str) -> list[str]:
    """The words of the command in a shell line or script, as the shell would hand them on.

    Backslashes at ends of lines, quotes and comments are read, and variables and arrays that the
    text itself sets are filled in; others stay as they are written. Of several commands it is the
    one with the most options. What follows a pipe or a redirection is left out.

    >>> words('GPUS=8; torchrun --nproc-per-node $GPUS pretrain_gpt.py --bf16 2>&1 | tee log')
    ['torchrun', '--nproc-per-node', '8', 'pretrain_gpt.py', '--bf16']
    """
    instance(str, line=line)
    values: dict[str, str] = {}
    best: list[str] = []
    for statement in _statements(re.sub(r"\\\r?\n", " ", line)):
        rest = _assigned(statement, values)
        found = _split(_filled(rest, values))
        end = next((i for i, word in enumerate(found) if ENDS.fullmatch(word)), len(found))
        if _options(found[:end]) > _options(best) or not best:
            best = found[:end]
    return best


def launched(arguments: Sequence[str], devices: int | None) -> tuple[int | None, list[str]]:
    """How many processes a line starts, and the program's arguments without the launcher's.

    The launcher is what stands before the program's name, the first word that ends in .py. Its
    --nproc-per-node and --nnodes count, 1 where one of them is missing; `devices` is for lines
    that do not say it. ValueError where both say it, and differ.

    >>> launched(["torchrun", "--nproc-per-node=8", "--nnodes", "4", "p.py", "--bf16"], None)
    (32, ['--bf16'])
    """
    given = [str(word) for word in row("arguments", arguments)]
    devices = None if devices is None else whole("devices", devices)
    at = next((i for i, word in enumerate(given) if word.endswith(".py")), None)
    before, after = ([], given) if at is None else (given[:at], given[at + 1 :])
    said, rest = _launcher(before)[0], after
    if at is None:
        said, rest = _launcher(after)
    counts = {}
    for names in (DEVICES, NODES):
        for name in names:
            if name in said:
                counts[names] = _count(name, said[name], devices)
    if not counts or None in counts.values():
        return devices, rest
    started = counts.get(DEVICES, 1) * counts.get(NODES, 1)
    if devices not in (None, started):
        raise ValueError(f"devices is {devices}, must be {started} as the line's launcher says")
    return started, rest


def _launcher(given: list[str]) -> tuple[dict[str, str], list[str]]:
    """What the options of a launcher say, by name, and the words that are none of them."""
    said, rest, i = {}, [], 0
    while i < len(given):
        name, equals, value = given[i].partition("=")
        plain = name.lstrip("-").replace("_", "-")
        i += 1
        if not name.startswith("--") or plain not in OF_LAUNCHER:
            rest.append(given[i - 1])
            continue
        if not equals and i < len(given) and not given[i].startswith("-"):
            value, i = given[i], i + 1
        said[plain] = value
    return said, rest


def _count(name: str, text: str, devices: int | None) -> int | None:
    """A number of the launcher's; none where it is the machine that knows, if devices are given."""
    if text.isdecimal():
        return whole(f"--{name}", int(text))
    if devices is not None:
        return None
    raise ValueError(f"--{name} is {text!r}, must be a whole number where devices are not given")


def _options(found: list[str]) -> int:
    return sum(word.startswith("--") for word in found)


def _statements(text: str) -> list[str]:
    """The commands of a script: what newlines and semicolons outside quotes and arrays part."""
    made, start, quote, depth, i = [], 0, "", 0, 0
    while i < len(text):
        letter = text[i]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (i == 0 or text[i - 1].isspace()):
            end = text.find("\n", i)
            text = text[:i] + (text[end:] if end >= 0 else "")
            continue
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif depth <= 0 and (letter in "\n;" or text.startswith("&&", i)):
            made.append(text[start:i].strip("&; \n"))
            start = i + 1
        i += 1
    made.append(text[start:].strip("&; \n"))
    return [statement for statement in made if statement]


def _assigned(statement: str, values: dict[str, str]) -> str:
    """Keep what a statement assigns at its beginning; what is left of it is a command."""
    while match := ASSIGNED.match(statement):
        name, more, at = match[1], match[2], match.end()
        end = _value_end(statement, at)
        text = statement[at:end]
        if text.startswith("(") or text[:1] in ("'", '"'):
            text = text[1:-1]
        text = _filled(text, values)
        values[name] = f"{values.get(name, '')} {text}" if more else text
        statement = statement[end:]
    return statement


def _value_end(text: str, at: int) -> int:
    """Where the value of an assignment ends: a quoted text, an array, or one word."""
    if text[at : at + 1] in ("'", '"'):
        end = text.find(text[at], at + 1)
        return len(text) if end < 0 else end + 1
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth <= 0 and (text[i].isspace() or (text[i] == ")" and text[at] == "(")):
            return i + (text[i] == ")")
    return len(text)


def _filled(text: str, values: dict[str, str]) -> str:
    """Text with the variables that are known in their places, and sums of them worked out."""

    def variable(match: re.Match) -> str:
        name = match[1] or match[3]
        fallback = match[0] if match[2] is None else match[2]
        return values.get(name, fallback)

    text = WHOLE_ARRAY.sub(lambda match: values.get(match[1], match[0]), text)
    text = VARIABLE.sub(variable, text)
    return ARITHMETIC.sub(_worked_out, text)


def _worked_out(match: re.Match) -> str:
    """$((8 * 4)) as 32; products and quotients alone, as scripts have for their world size."""
    parts = [part.strip() for part in re.split(r"([*/])", match[1])]
    if not all(part.isdecimal() for part in parts[::2]):
        return match[0]
    value = int(parts[0])
    for sign, part in zip(parts[1::2], parts[2::2], strict=True):
        if sign == "/" and int(part) == 0:
            return match[0]
        value = value * int(part) if sign == "*" else value // int(part)
    return str(value)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"the line has a quote that does not end ({error})") from None
