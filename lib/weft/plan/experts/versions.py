"""What the experts' MLP multiplies, moves and launches, in the order in which it was invented."""

from typing import NamedTuple

from weft.plan.arguments import chosen, sizes, whole

VERSIONS = ("looped", "padded", "permuted", "fused")


class MLPCost(NamedTuple):
    """A forward pass: rows multiplied and their FLOPs, bytes of memory, matmuls launched, waits."""

    rows: int
    flops: int
    bytes: int
    launches: int
    waits: bool


def mlp_cost(
    version: str,
    tokens: int,
    width: int,
    hidden: int,
    experts: int,
    k: int = 1,
    capacity: int = 0,
    size: int = 2,
) -> MLPCost:
    """Of two matrices D x F with relu between, for k choices of each of `tokens` tokens.

    `padded` multiplies `capacity` rows for each expert, the others one for each choice. Every
    version reads its weights once, reads D numbers of a row and writes F, reads F and writes D,
    and reads all that was made for the sum over choices. All but `fused` copy rows into the
    experts' order, and what was made back, and read and write F for the relu. Partial tiles,
    caches and lists of row numbers are left out.

    >>> [round(mlp_cost(v, 32768, 2048, 768, 128, k=8).bytes / 1e9, 2) for v in VERSIONS[2:]]
    [10.07, 4.97]
    """
    chosen("version", version, VERSIONS)
    tokens, capacity = whole("tokens", tokens, 0), whole("capacity", capacity, 0)
    width, hidden, experts, k, size = sizes(
        width=width, hidden=hidden, experts=experts, k=k, size=size
    )
    if k > experts:
        raise ValueError(f"k is {k}, must be at most experts = {experts}")
    choices = k * tokens
    rows = experts * capacity if version == "padded" else choices
    moved = 2 * experts * width * hidden  # the weights
    moved += rows * 2 * (width + hidden)  # both matmuls
    moved += (choices + tokens) * width  # the sum over choices
    if version != "fused":
        moved += 2 * rows * width + 2 * choices * width + 2 * rows * hidden
    launches = 2 * experts if version == "looped" else 2
    return MLPCost(rows, 4 * rows * width * hidden, moved * size, launches, version == "looped")
