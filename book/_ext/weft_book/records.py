"""The records of book/measured, found by name, chip and result."""

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import weft
from weft.bench.record import Record, read


@cache
def records(folder: Path) -> dict[str, dict[str, Record]]:
    """Every record of a folder: name -> chip -> record."""
    found: dict[str, dict[str, Record]] = {}
    for path in sorted(folder.glob("*.json")):
        record = read(path)
        if path.stem != f"{record.name}.{record.chip}":
            raise ValueError(
                f"{path.name} holds {record.name} on {record.chip};"
                f" its name must be {record.name}.{record.chip}.json"
            )
        found.setdefault(record.name, {})[record.chip] = record
    return found


@cache
def benchmarks() -> dict[str, str]:
    """The names of records that our benchmarks write, as their sources spell them -> topic."""
    found = {}
    for path in sorted(Path(weft.__file__).parent.glob("bench/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.setdefault(node.value, path.stem)
    return found


def folder_of(env) -> Path:
    return Path(env.srcdir, "book", "measured")


def one_record(env, name: str, chip: str | None) -> Record:
    """The record of that name; the chip may be left out where there is only one."""
    chips = records(folder_of(env)).get(name, {})
    if not chips:
        have = ", ".join(sorted(records(folder_of(env)))) or "nothing"
        raise ValueError(f"no record `{name}` in book/measured, which has {have}")
    if chip is None and len(chips) > 1:
        raise ValueError(f"`{name}` was measured on {', '.join(chips)}; say which (`{name}@CHIP`)")
    if chip is not None and chip not in chips:
        raise ValueError(f"`{name}` was measured on {', '.join(chips)}, not on {chip}")
    return chips[chip] if chip else next(iter(chips.values()))


def recorded(env) -> Callable[..., float]:
    """The function `measured` of {calc}."""

    def measured(record: str, result: str, who: str | None = None, chip: str | None = None):
        return one_record(env, record, chip).result(result, who).value

    return measured


def recording(env) -> Callable[..., Record]:
    """The function `record` of {picture}."""

    def record(name: str, chip: str | None = None) -> Record:
        return one_record(env, name, chip)

    return record
