"""What the reference and the kernels accept: Longformer's arguments, and a layout of blocks."""

from typing import Any

from weft.plan.arguments import sizes, whole
from weft.plan.attention import Sizes, check
from weft.plan.tensors import dtype_of, tensor


def check_longformer(
    q: Any, k: Any, v: Any, window: int, dilation: int = 1, scale: Any = None,
    global_mask: Any = None, global_q: Any = None, global_k: Any = None, global_v: Any = None,
) -> tuple[Sizes, int, int]:  # fmt: skip
    """Sizes, window and dilation, or what is wrong, for weft.ref.sparse and the kernels.

    As many keys as queries, in windows of at least 0 keys on a side; a mask [B, T] in bool; what
    is given for global tokens is shaped like what it replaces. ValueError names the argument.
    """
    found = check(q, k, v, None, scale)
    window, (dilation,) = whole("window", window, 0), sizes(dilation=dilation)
    if found.S != found.T:
        raise ValueError(f"k has {found.S} keys, must have q's {found.T}")
    for name, ours, other in (("q", global_q, q), ("k", global_k, k), ("v", global_v, v)):
        if ours is not None:
            alike = {"dtypes": (dtype_of(other),), "beside": (name, other)}
            tensor(f"global_{name}", ours, f"that of {name}", other.shape, **alike)
    if global_mask is not None:
        shape = found.B, found.T
        tensor("global_mask", global_mask, "[B, T] of q", shape, dtypes=("bool",), beside=("q", q))
    return found, window, dilation


def check_layout(q: Any, k: Any, v: Any, layout: Any, block: int, scale: Any) -> tuple[Sizes, int]:
    """Sizes and block, or what is wrong: a layout in bool with a row for each block of queries."""
    found = check(q, k, v, None, scale)
    (block,) = sizes(block=block)
    rows, columns = -(-found.T // block), -(-found.S // block)
    dims = f"[H or 1, T / block, S / block] with block = {block}"
    shapes = (found.H, rows, columns), (1, rows, columns)
    tensor("layout", layout, dims, *shapes, dtypes=("bool",), beside=("q", q))
    return found, block
