"""What an answer may learn of a tensor that it cannot see, and may do to one: little, and counted.

A number can leave a tensor as a Python number, but also as the size of something whose size
depends on it, as the words of an error or of a text. All of them are counted here, where they are
made. A tensor can escape a meter by being made larger, or be changed under a probe that handed it
over: a call that does so is undone and refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ctypes import c_float
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from weft.meter.mode import Mode
from weft.meter.storage import storage_of

IN_WORDS = re.compile(r"\d+|inf|nan|True|False")


class Learned(Mode):
    """Counts what operations tell of tensors' numbers: one, or the size of what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_size, by_value = _tells(func)
        if by_value or (by_size and _by_numbers(func, args)):
            self.count += 1
        return func(*args, **(kwargs or {}))


@cache
def _tells(func: Any) -> tuple[bool, bool]:
    """Whether an operation's sizes may hang on numbers, and whether it gives a number itself."""
    tags = func.tags
    return torch.Tag.dynamic_output_shape in tags, torch.Tag.data_dependent_output in tags


def _by_numbers(func: Any, args: Any) -> bool:
    """Whether a size hangs on the arguments' numbers: it does not with indices that are whole."""
    if "index" not in str(func) or len(args) < 2 or not isinstance(args[1], list | tuple):
        return True
    return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])


def numbers(value: Any) -> int:
    """How many numbers of 32 bits there are in a result, those in its words included."""
    if isinstance(value, bool) or value is None:
        return int(value is not None)
    if isinstance(value, int):
        return max(1, -(-value.bit_length() // 32))
    if isinstance(value, float):
        return 1 if value != value or c_float(value).value == value else 2
    if isinstance(value, complex):
        return numbers(value.real) + numbers(value.imag)
    if isinstance(value, str):
        return len(IN_WORDS.findall(value))
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return sum(map(numbers, value))
    return 0


def inside(*values: Any) -> Iterator[Any]:
    """What is in nested arguments, the tensors and whatever else."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from inside(*value)
        elif isinstance(value, dict):
            yield from inside(*value.values())
        else:
            yield value


def dense(value: Any) -> None:
    """PermissionError where a result has numbers in memory that no meter looks at."""
    for x in inside(value):
        if isinstance(x, torch.Tensor) and (x.layout is not torch.strided or x.is_quantized):
            raise PermissionError(
                "sparse and quantized tensors are not counted: compute with ordinary ones"
            )


@contextmanager
def in_place(tensors: Iterable[torch.Tensor], given: Iterable[torch.Tensor]) -> Iterator[None]:
    """PermissionError where what is done within makes one of the tensors' memory larger.

    The `given` ones it may not give another shape or memory either. What it did is undone.
    """
    before = [(x, storage_of(x), storage_of(x).nbytes(), _form(x)) for x in tensors]
    fixed = {id(x) for x in given}
    try:
        yield
    finally:
        wrong = [
            (x, storage, size, form)
            for x, storage, size, form in before
            if storage.nbytes() > size or (id(x) in fixed and _form(x) != form)
        ]
        if wrong:
            with _disable_current_modes(), torch.no_grad():
                for x, storage, size, (_, *form) in wrong:
                    storage.resize_(size)
                    x.data = torch.empty(0, dtype=x.dtype).set_(storage, *form)
            raise PermissionError(
                "a tensor cannot be made larger in place, nor one that you were given be given"
                " another form: what out= or resize_ takes is not counted. Make a new tensor"
            )


def _form(x: torch.Tensor) -> tuple[Any, ...]:
    """Which memory a tensor's numbers lie in, and where, as set_ takes it."""
    return storage_of(x)._cdata, x.storage_offset(), tuple(x.shape), x.stride()


def blank(x: torch.Tensor) -> None:
    """Write over what was in a new tensor's memory before it: nobody has computed it."""
    with _disable_current_modes(), torch.no_grad():
        number = x.is_floating_point() or x.is_complex()
        whole = x.dtype is not torch.bool and not number
        x.fill_(torch.iinfo(x.dtype).max if whole else float("nan") if number else True)
