"""What runs for the tests beside the answers: a tile memory, and an interpreter, that count."""

import importlib.util
import os
from contextlib import contextmanager

from weft.grade.worker import close

MARGIN = 64  # elements before and behind a tensor that nobody may touch
COUNTED = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")


def warm() -> None:
    """Import what is slow to import, with Triton's interpreter on, GPU or not: it counts."""
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    torch.set_num_threads(1)
    if importlib.util.find_spec("triton"):
        import weft.kernels  # noqa: F401  mends the interpreter


def prepare() -> None:
    """Close what the exercises ask for, before the answers are imported."""
    close("weft.plan.roofline", "weft.plan.decode")


def written(function, count):
    """Raise NotImplementedError for a stub, before anything is made for it."""
    try:
        function(*[None] * count)
    except NotImplementedError:
        raise
    except Exception:
        pass  # None means nothing to a function that works


# --- softmax --------------------------------------------------------------------------------------


def softmax(answers, rows, capacity):
    """Run the answers' softmax on rows of float32 in so much tile memory.

    What came out, and the bytes that were read and written.
    """
    written(answers.softmax, 3)
    import torch

    from weft.meter import Sram

    x = torch.tensor(rows)
    out = torch.full_like(x, float("nan"))
    sram = Sram(capacity)
    with sram:
        answers.softmax(x, out, sram)
    return {"out": out.tolist(), "read": sram.read_bytes, "written": sram.written_bytes}


# --- swiglu ---------------------------------------------------------------------------------------


def swiglu(answers, rows, dtype):
    """Run the answers' kernel on h, which lies between poisoned margins, as out does.

    What came out, the bytes that were loaded and stored, how many elements of out were stored,
    and the first access beside the two, or None.
    """
    written(answers.swiglu_kernel, 4)
    import torch
    from triton.runtime.errors import InterpreterError

    h = poisoned(torch, len(rows), len(rows[0]), dtype)
    out = poisoned(torch, len(rows), len(rows[0]) // 2, dtype)
    h.copy_(torch.tensor(rows))
    seen = Seen({"h": h, "out": out})
    try:
        with counted(seen):
            answers.swiglu(h, out)
    except InterpreterError as error:
        if not seen.outside:
            raise error.__cause__ or error from None
    return {
        "out": out.double().tolist(),
        "loaded": seen.loaded * h.element_size(),
        "stored": seen.stored * h.element_size(),
        "covered": len(seen.places),
        "outside": seen.outside,
    }


def poisoned(torch, rows, columns, dtype):
    """A tensor of NaN, with more of it on either side."""
    whole = torch.full((rows * columns + 2 * MARGIN,), float("nan"), dtype=getattr(torch, dtype))
    return whole[MARGIN:-MARGIN].view(rows, columns)


class Seen:
    """What a kernel has loaded and stored, in elements, and where it went astray."""

    def __init__(self, tensors):
        self.spans = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors.values()]
        self.names = " and ".join(tensors)
        self.loaded = self.stored = 0
        self.places = set()
        self.outside = None

    def __call__(self, sort, ptrs, mask):
        """The addresses of one load or store; what is outside the tensors is not carried out."""
        places = ptrs.data[mask.data.astype(bool)].ravel().tolist()
        if not all(any(start <= at < stop for start, stop in self.spans) for at in places):
            self.outside = f"a {sort} outside {self.names}"
            raise ValueError(self.outside)
        return places


@contextmanager
def counted(seen):
    """Within it the interpreter's loads and stores are counted."""
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    before = {name: getattr(Builder, name) for name in COUNTED}

    def load(builder, ptrs, mask, *rest):
        seen.loaded += len(seen("load", ptrs, mask))
        return before["create_masked_load"](builder, ptrs, mask, *rest)

    def store(builder, ptrs, value, mask, *rest):
        places = seen("store", ptrs, mask)
        seen.stored += len(places)
        seen.places.update(places)
        return before["create_masked_store"](builder, ptrs, value, mask, *rest)

    def atomic(*_):
        raise ValueError("atomics are not counted: use plain loads and stores")

    try:
        for name, function in zip(COUNTED, (load, store, atomic, atomic), strict=True):
            setattr(Builder, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(Builder, name, function)
