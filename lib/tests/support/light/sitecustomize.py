"""What every Python that tests start does first: leave out imports that take seconds for nothing.

Python runs this file at its start where its folder is on PYTHONPATH, where conftest.py puts it.
"""

import functools
import gc
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

# A grammar for web addresses, which jsonschema takes where it is there: 1.2 s, and nobody here has
# addresses checked.
sys.modules.setdefault("rfc3987_syntax", None)

# Going through what was just imported is a tenth of torch's import, and as much at each end.
gc.set_threshold(50_000)
GREAT = {"torch", "sympy"}


def compiles() -> bool:
    """Whether anybody has imported torch's compiler; its import takes as long as torch's."""
    return "torch._dynamo" in sys.modules


def uncompiled(disable):
    """torch._compile._disable_dynamo, which imports the compiler to say what it is to leave out.

    What it leaves out runs as it is while there is no compiler.
    """

    def _disable_dynamo(fn=None, recursive=True):
        if fn is None:
            return functools.partial(_disable_dynamo, recursive=recursive)
        disabled = disable(fn, recursive)

        @functools.wraps(fn)
        def called(*args, **kwargs):
            return (disabled if compiles() else fn)(*args, **kwargs)

        return called

    return _disable_dynamo


def unbroken(wrap):
    """torch.optim's wrapper of step(), which imports the compiler to break its graph there."""

    def _use_grad_for_differentiable(func):
        broken = wrap(func)

        @functools.wraps(func)
        def step(self, *args, **kwargs):
            if compiles():
                return broken(self, *args, **kwargs)
            with sys.modules["torch"].set_grad_enabled(self.defaults["differentiable"]):
                return func(self, *args, **kwargs)

        return step

    return _use_grad_for_differentiable


LIGHTER = {
    "pybtex.plugin": ("entry_points", functools.cache),  # asked 200 times while a book is built
    "torch._compile": ("_disable_dynamo", uncompiled),
    "torch.optim.optimizer": ("_use_grad_for_differentiable", unbroken),
}


def uncollected(load):
    """What loads a module without looking for garbage, and leaves out of later looks what stays."""

    def exec_module(module):
        on = gc.isenabled()
        gc.disable()
        try:
            load(module)
        finally:
            if on:
                gc.enable()
        gc.freeze()

    return exec_module


class Lighter(MetaPathFinder):
    """Finds the modules that have something LIGHTER, which takes its place once they are loaded.

    Those that are GREAT are loaded with the collector off.
    """

    def find_spec(self, name, path=None, target=None):
        if name in GREAT:
            found = PathFinder.find_spec(name, path, target)
            if found is not None:
                found.loader.exec_module = uncollected(found.loader.exec_module)
            return found
        if name not in LIGHTER:
            return None
        found = PathFinder.find_spec(name, path, target)
        load, (heavy, lighter) = found.loader.exec_module, LIGHTER[name]

        def load_lighter(module):
            load(module)
            if hasattr(module, heavy):  # else another torch, and nothing is saved
                setattr(module, heavy, lighter(getattr(module, heavy)))

        found.loader.exec_module = load_lighter
        return found


sys.meta_path.insert(0, Lighter())
