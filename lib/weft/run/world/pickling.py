"""What goes to the ranks and comes back: functions of notebook cells, too, and modules of files."""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

try:
    import cloudpickle
except ImportError:  # then functions must live in a module
    cloudpickle = None


class _PlainPickler(pickle.Pickler):
    """For machines with torch and nothing else: pickle, which finds functions by name.

    A rank would look for those of a script or a cell in vain, so they are refused here.
    """

    def reducer_override(self, obj: object) -> Any:
        named = isinstance(obj, types.FunctionType | type)
        if named and (obj.__module__ == "__main__" or "<" in obj.__qualname__):
            raise pickle.PicklingError(
                f"{obj.__qualname__} is defined in a cell, a script or a function: install"
                " cloudpickle, or move it into a module"
            )
        return NotImplemented


if cloudpickle is None:
    _Pickler = _PlainPickler
else:

    class _Pickler(cloudpickle.Pickler):
        """cloudpickle, which also takes along functions that name torch.ops."""

        def reducer_override(self, obj: object) -> Any:
            special = isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType
            if special and sys.modules.get(obj.__name__) is obj:
                return import_module, (obj.__name__,)
            return super().reducer_override(obj)


def _dumps(value: object) -> bytes:
    data = io.BytesIO()
    _Pickler(data).dump(value)
    return data.getvalue()


@contextmanager
def _by_value(fn: Callable[..., Any]) -> Iterator[None]:
    """Have fn's module pickled with it where a rank could not import it: a file loaded by path."""
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    name = module.__name__.partition(".")[0] if module else "__main__"
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    found = any(find and find(name, None) for find in finders)
    if cloudpickle is None or name == "__main__" or found:
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def packed(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """fn and args pickled, together since they may share objects; ValueError names the culprit."""
    try:
        with _by_value(fn):
            return _dumps((fn, args))
    except Exception as whole:
        for name, value in (("fn", fn), *((f"args[{i}]", arg) for i, arg in enumerate(args))):
            try:
                _dumps(value)
            except Exception as error:
                raise ValueError(f"{name} = {value!r} cannot be pickled: {error}") from error
        raise ValueError(f"fn and args cannot be pickled together: {whole}") from whole


def packed_result(value: object) -> bytes:
    """What a rank returned, pickled; PicklingError says what of it cannot be."""
    try:
        return _dumps(value)
    except Exception as error:
        raise pickle.PicklingError(
            f"what fn returned, a {type(value).__name__}, cannot be pickled: {error}"
        ) from error
