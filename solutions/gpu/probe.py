"""What runs for the tests beside the answers: an interpreter that counts."""

import importlib.util
import os

from weft.grade import expect_each

BLOCK = 128  # columns of a row that one program of the addition has
FAR = float("nan")  # what lies between rows, and is nobody's


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


def apart(rows, stride, dtype):
    """Rows that lie so far apart in memory, as one vector with something between them."""
    import torch

    filled = [row + [FAR] * (stride - len(row)) for row in rows]
    return torch.tensor(filled, dtype=torch.float64).flatten().to(getattr(torch, dtype))


def within(flat, count, columns, stride):
    """Of a vector of counts or numbers, what belongs to the rows, and what lies between them."""
    inside = [flat[i * stride : i * stride + columns] for i in range(count)]
    between = [flat[i * stride + columns : (i + 1) * stride] for i in range(count)]
    return inside, between


def add(answers, x, y, strides):
    """Run the answers' addition on rows that lie apart: what came out, and what was moved."""
    from weft.grade import kernel

    count, columns = len(x), len(x[0])
    named = {
        "x": apart(x, strides[0], "float32"),
        "y": apart(y, strides[1], "float32"),
        "out": apart([[FAR] * columns] * count, strides[2], "float32"),
    }
    grid = count, -(-columns // BLOCK)
    counts = kernel.run(answers, "add_kernel", grid, named, (columns, *strides, BLOCK)).moved
    found = {"out": within(named["out"].tolist(), count, columns, strides[2])[0]}
    for kind, moved in counts.items():
        for stride, (name, flat) in zip(strides, moved.items(), strict=True):
            found[kind, name] = within(flat, count, columns, stride)
    return {"out": found.pop("out"), "moved": [(*key, *value) for key, value in found.items()]}


def rms_norm(answers, x, weight, stride, epsilon, dtype):
    """Run the answers' norm on rows that lie apart: what came out, and what was moved."""
    import torch

    from weft.grade import kernel

    count, columns = len(x), len(x[0])
    kind = getattr(torch, dtype)
    named = {
        "x": apart(x, stride, dtype),
        "weight": torch.tensor(weight, dtype=kind),
        "out": torch.full((count * columns,), float("nan"), dtype=kind),
    }
    block = 1 << (columns - 1).bit_length()
    rest = columns, stride, epsilon, block
    counts = kernel.run(answers, "rms_norm_kernel", (count,), named, rest).moved
    strides = {"x": stride, "weight": columns, "out": columns}
    moved = [
        (verb, name, *within(flat, 1 if name == "weight" else count, columns, strides[name]))
        for verb, by_name in counts.items()
        for name, flat in by_name.items()
    ]
    out = within(named["out"].double().tolist(), count, columns, columns)[0]
    return {"out": out, "moved": moved}


# --- in the grader's process ----------------------------------------------------------------------


def check_moved(case, got, often):
    """Fail unless each element is moved as often as (verb, name) says, and nothing between rows."""
    verbs = {"loads": "reads", "stores": "writes"}
    for kind, name, inside, between in got["moved"]:
        times = often.get((kind, name), 0)
        case_of = f"{case}: times that it {verbs[kind]} {name}"
        expect_each(case_of, inside, times, times)
        for row in between:
            if any(row):
                raise AssertionError(f"{case_of}: expected nothing between the rows, got {row}")
