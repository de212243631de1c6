"""Layouts after Longformer that do not look at the tokens: random blocks, and sinks.

They count in blocks, of whatever size, and cost nothing to choose: a layout is made once.
"""

import torch
from torch import Tensor

from weft.plan.arguments import few, sizes, whole
from weft.ref.attention import INF


def bigbird(
    blocks: int, window: int = 1, globals: int = 1, random: int = 1, heads: int = 1, seed: int = 0
) -> Tensor:
    """A window, global blocks, and in each row `random` others: a layout [heads, blocks, blocks].

    A block sees itself and `window` blocks on each side. The first `globals` blocks see all and
    are seen by all, and random ones are drawn from what is left of a row, for each head anew: from
    any block to any other it is then a few steps, with blocks in proportion to the length. Of an
    encoder: later blocks are seen. ValueError names an argument. Zaheer et al. 2020, section 2.

    >>> bigbird(5, random=0)[0].int().sum(1).tolist()
    [5, 3, 4, 4, 3]
    """
    blocks, heads, window, globals = _checked(blocks, window, globals, heads)
    row = torch.arange(blocks).unsqueeze(1)
    column = torch.arange(blocks)
    seen = ((row - column).abs() <= window) | (row < globals) | (column < globals)
    dice = torch.Generator().manual_seed(whole("seed", seed, 0, 2**63))
    drawn = torch.rand(heads, blocks, blocks, generator=dice).masked_fill(seen, -INF)
    return seen | highest(drawn, whole("random", random, 0))


def sinks(blocks: int, window: int = 1, first: int = 1) -> Tensor:
    """A causal window and the `first` blocks of the text: a layout [1, blocks, blocks].

    A block sees itself, `window` blocks before it, and the first ones, which a trained model
    gives what weight it has left over: without them a window falls apart. What lies between is
    forgotten, so a decoder keeps first + window + 1 blocks of keys, however long the text.
    ValueError names an argument. Xiao et al. 2024, section 3.

    >>> sinks(5)[0].int().tolist()[3:]
    [[1, 0, 1, 1, 0], [1, 0, 0, 1, 1]]
    """
    blocks, _, window, first = _checked(blocks, window, first, first_name="first")
    back = torch.arange(blocks).unsqueeze(1) - torch.arange(blocks)
    return ((back >= 0) & ((back <= window) | (torch.arange(blocks) < first))).unsqueeze(0)


def highest(scores: Tensor, top: int) -> Tensor:
    """True where a score is among the `top` of its row, and not where it is -inf."""
    found, where = scores.topk(min(top, scores.shape[-1]))
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, where, found > -INF)


def _checked(
    blocks: int, window: int, first: int, heads: int = 1, first_name: str = "globals"
) -> tuple[int, int, int, int]:
    blocks, heads = sizes(blocks=blocks, heads=heads)
    few(heads * blocks**2, "blocks", blocks=blocks, heads=heads)
    return blocks, heads, whole("window", window, 0), whole(first_name, first, 0, blocks)
