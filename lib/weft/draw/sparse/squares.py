"""The score matrix of a small window: its pairs, and its blocks, full, partial or not there."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE
from weft.plan.sparse import blocks

FULL, PARTIAL = "full", "partial"
HUES = {FULL: svg.FORWARD, PARTIAL: svg.TRAVEL}
LOOKS = {kind: hue.paint(0.15) | OUTLINE for kind, hue in HUES.items()}


def seen(
    T: int, window: int, dilation: int = 1, globals: int = 0, causal: bool = True
) -> list[list[int]]:
    """For each query the keys that it sees, in order."""

    def sees(i: int, j: int) -> bool:
        near = abs(i - j) <= window * dilation and (i - j) % dilation == 0
        return (near or min(i, j) < globals) and (j <= i or not causal)

    return [[j for j in range(T) if sees(i, j)] for i in range(T)]


def kinds(
    T: int, block: int, window: int, dilation: int = 1, globals: int = 0, causal: bool = True
) -> dict[tuple[int, int], str]:
    """Each block that holds a pair: full where it holds nothing else."""
    count: dict[tuple[int, int], int] = {}
    for i, keys in enumerate(seen(T, window, dilation, globals, causal)):
        for j in keys:
            at = i // block, j // block
            count[at] = count.get(at, 0) + 1
    return {
        at: FULL if count[at] == block**2 else PARTIAL
        for at in sorted(blocks(T, block, window, dilation, globals, causal))
    }
