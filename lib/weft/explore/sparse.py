"""The sliders of the chapter on sparse attention: blocks of a window, and its break-even."""

from weft.draw.sparse import even_svg, kinds, tiles_svg
from weft.explore.box import explored
from weft.plan.sparse import break_even, pairs, time_share, touched, waste
from weft.plan.units import amount, length


@explored
def tiles(
    T: int = 32, window: int = 9, dilation: int = 1, globals: int = 0, block: int = 4,
    sides: str = "causal",
) -> tuple[str, str]:  # fmt: skip
    """The blocks that a small window touches, and what is computed for nothing."""
    picture = tiles_svg(T, window, dilation, globals, block, sides)
    rest = window, dilation, globals, sides == "causal"
    count, all_blocks = touched(T, block, *rest), touched(T, block, T, causal=sides == "causal")
    full = list(kinds(T, block, *rest).values()).count("full")
    summary = (
        f"{pairs(T, *rest)} pairs lie in {count} blocks, {full} of them full, where dense "
        f"attention has {all_blocks}. For each pair {amount(waste(T, block, *rest), 3)} scores "
        f"are computed."
    )
    return picture, summary


@explored
def even(keys: int = 128, block: int = 128, ratio: int = 200, T: int = 8192) -> tuple[str, str]:
    """A causal window's time over dense attention's, from 512 to 131072 tokens."""
    picture = even_svg(keys, block, ratio)
    window, times = keys - 1, ratio / 100
    dense = pairs(T, T, causal=True)
    by_pairs = pairs(T, window, causal=True) / dense
    summary = (
        f"Faster than dense attention from {break_even(block, window, times):,} tokens on. At "
        f"{length(T)} tokens a window of {keys} has {amount(by_pairs, 2)} of the pairs, "
        f"{amount(time_share(T, block, window), 2)} of the blocks, and takes "
        f"{amount(time_share(T, block, window, times), 2)} of the time: "
        f"{amount(1 / time_share(T, block, window, times), 2)} times as fast, not "
        f"{amount(1 / by_pairs, 2)}."
    )
    return picture, summary
