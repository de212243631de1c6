"""GO FAST. Triton and Gluon kernels with the signatures of weft.ref.

One file per kernel, versions in order. Inputs are finite: what NaN and infinities do is left open,
here as in weft.ref, and nothing is spent on them. Kernels never import weft.ref: the tests bring
the two together. May import: torch, triton and weft.plan.

Where torch sees no CUDA device, importing this package turns Triton's interpreter on, so that the
same kernels run on CPU tensors. Triton decides that where a kernel is defined, hence here, before
any is. TRITON_INTERPRET, set to 0 or 1 beforehand, has the last word. Kernels in Gluon, which
Triton does not interpret, have an interpreter of our own, `weft.kernels.gluon.interpreter`.
"""

import os
import sys
from importlib import import_module, reload
from importlib.util import find_spec

import torch

from weft.kernels.code import Compiled, Pass, compile_for
from weft.kernels.interpret import mend

__all__ = ["Compiled", "Pass", "compile_for"]


def _interpret() -> None:
    """Turn the interpreter on, for kernels of the book and for those inside triton.language.

    Triton may have been imported already (torch's optimizers do it); `tl.zeros`, `tl.sum` and
    their like, kernels themselves, were then defined for a GPU, and are defined once more.
    """
    late = "triton.language" in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    if not late:
        return
    language = import_module("triton.language")
    for name in ("standard", "random"):
        module = reload(import_module(f"triton.language.{name}"))
        for key, value in vars(module).items():
            if getattr(vars(language).get(key), "__module__", None) == module.__name__:
                setattr(language, key, value)


if "TRITON_INTERPRET" not in os.environ and not torch.cuda.is_available():
    _interpret()
if os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton"):
    mend()
