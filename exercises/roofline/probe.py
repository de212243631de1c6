"""What runs for the tests beside the answers: a tile memory, and an interpreter, that count."""

import importlib.util
import os

from weft.grade import expect_each

BLOCK = 128  # elements of a row of out that one program computes


def warm() -> None:
    """Import what is slow to import, with Triton's interpreter on, GPU or not: it counts."""
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    torch.set_num_threads(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401  mends the interpreter


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

    What came out, and how often each element was loaded and stored.
    """
    written(answers.softmax, 3)
    import torch

    from weft.grade.tiles import Tiles

    x = torch.tensor(rows)
    out = torch.full_like(x, float("nan"))
    sram = Tiles(capacity, {"x": x, "out": out})
    with sram:
        answers.softmax(x, out, sram)
    return {"out": out.tolist()} | sram.moved


# --- swiglu ---------------------------------------------------------------------------------------


def swiglu(answers, rows, dtype):
    """Run the answers' kernel on h, which lies between poisoned margins, as out does.

    What came out, and how often each element was loaded and stored.
    """
    written(answers.swiglu_kernel, 4)
    import torch

    from weft.grade import kernel

    h = torch.tensor(rows, dtype=getattr(torch, dtype))
    F = h.shape[1] // 2
    named = {"h": h, "out": h.new_full((len(rows), F), float("nan"))}
    grid = len(rows), -(-F // BLOCK)
    counts = kernel.run(answers, "swiglu_kernel", grid, named, (F, BLOCK))
    return {"out": named["out"].double().tolist()} | counts.moved


# --- in the grader's process ----------------------------------------------------------------------


def check_moved(case, got, of, least, most):
    """Fail unless each element of `of` is read so often, and each of out written once."""
    for verb, kind in (("reads", "loads"), ("writes", "stores")):
        for name in (of, "out"):
            limits = {("reads", of): (least, most), ("writes", "out"): (1, 1)}
            case_of = f"{case}: times that it {verb} {name}"
            expect_each(case_of, got[kind][name], *limits.get((verb, name), (0, 0)))
