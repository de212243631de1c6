"""The base of all meters: a context in which torch shows every operation, uncompiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack


class Mode(TorchDispatchMode):
    """A context that torch shows every operation of this thread and of its backward passes."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to skip the compiler torch would first import it, which takes seconds."""
        return False


class _Beside(Mode):
    """Shows the operations of the thread that enters it to a meter of another thread."""

    def __init__(self, meter: Mode) -> None:
        super().__init__()
        self._meter = meter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._meter.__torch_dispatch__(func, types, args, kwargs)


def meters() -> AbstractContextManager[None]:
    """The meters of this thread, as a context for a thread that works on its behalf.

    What that thread does within the context is counted as if it were done here.
    """
    return _entered([m for m in _get_current_dispatch_mode_stack() if isinstance(m, Mode)])


@contextmanager
def _entered(modes: list[Mode]) -> Iterator[None]:
    with ExitStack() as stack:
        for mode in modes:
            stack.enter_context(_Beside(mode))
        yield
