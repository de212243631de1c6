"""What kernels and references of experts accept, or what is wrong with it."""

from typing import Any

from weft.plan.tensors import dtype_of, ranked, tensor


def check_grouped(x: Any, w: Any, sizes: Any) -> None:
    """x [tokens, D], w [E, D, F] of one dtype on one device, sizes [E] whole; or what is wrong."""
    _, D = ranked("x", x, "tokens D", empty="tokens")
    E, _, F = ranked("w", w, "E D F")
    tensor("w", w, "[E, D, F] with x's D", (E, D, F), dtypes=(dtype_of(x),), beside=("x", x))
    tensor("sizes", sizes, "[E] of w", (E,), dtypes=("int32", "int64"), beside=("x", x))


def check_mlp(x: Any, expert: Any, weight: Any, kept: Any, up: Any, down: Any) -> None:
    """x [tokens, D], routes [tokens, k] as `route` gives them, up [E, D, F], down [E, F, D]."""
    check_matrices(x, up, down)
    T = x.shape[0]
    k = (*getattr(expert, "shape", ()), 1, 1)[1]
    for name, value, dtypes in (
        ("expert", expert, ("int64",)),
        ("weight", weight, ("float32", "float64")),
        ("kept", kept, ("bool",)),
    ):
        tensor(name, value, "[tokens, k] of x", (T, k), dtypes=dtypes, beside=("x", x))


def check_matrices(x: Any, up: Any, down: Any) -> tuple[int, int, int]:
    """E, D and F of the experts' two matrices, which have x's width, dtype and device."""
    _, D = ranked("x", x, "tokens D", empty="tokens")
    E, _, F = ranked("up", up, "E D F")
    alike = {"dtypes": (dtype_of(x),), "beside": ("x", x)}
    tensor("up", up, "[E, D, F] with x's D", (E, D, F), **alike)
    tensor("down", down, "[E, F, D] of up", (E, F, D), **alike)
    return E, D, F
