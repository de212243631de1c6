"""Who holds which chunks: the strip cut into pairs of neighbours, and the strip folded."""

from weft.draw.figure import INK, OUTLINE, Figure
from weft.draw.zero import HUES
from weft.plan.arguments import whole

WIDE, LEFT, HIGH, UNIT = 340, 4, 22, 9


def fold_svg(n: int = 4) -> str:
    """Chunk i of 2 n as a bar of i + 1/2: the chunks of keys that its queries see, on average.

    Above, a rank holds two neighbours. Below, the strip is folded, so that chunk r lies on chunk
    2 n - 1 - r: all piles are 2 n high.
    """
    n = whole("n", n, least=1, most=len(HUES))
    step = (WIDE - 2 * LEFT) / (2 * n)
    highest = (4 * n - 1) / 2 * UNIT
    top = 26 + highest
    bottom = top + HIGH + 66 + 2 * n * UNIT
    figure = Figure.small(
        WIDE, bottom + HIGH + 26, f"{2 * n} chunks of a causal sequence on {n} ranks",
        _describe(n), largest=1.4,
    )  # fmt: skip
    figure.words(LEFT, 14, "contiguous: two neighbours each", font_weight="bold")
    for i in range(2 * n):
        _bar(figure, i, i // 2, LEFT + i * step, top, step, n)
        _chunk(figure, i, i // 2, LEFT + i * step, top, step)
    for r in range(n):
        x = LEFT + (2 * r + 1) * step
        figure.words(x, top + HIGH + 16, f"{4 * r + 2}", text_anchor="middle", font_size=11)
    figure.words(LEFT, top + HIGH + 44, "zigzag: the strip folded", font_weight="bold")
    each = (WIDE - 2 * LEFT) / n
    for r in range(n):
        x = LEFT + r * each + each / 2 - step / 2
        far = 2 * n - 1 - r
        _bar(figure, far, r, x, bottom, step, n)
        _bar(figure, r, r, x, bottom - (far + 0.5) * UNIT, step, n)
        _chunk(figure, r, r, x - step / 2, bottom, step)
        _chunk(figure, far, r, x + step / 2, bottom, step)
        figure.words(x + step / 2, bottom + HIGH + 16, f"{2 * n}", text_anchor="middle",
                     font_size=11)  # fmt: skip
    return str(figure)


def _bar(figure, chunk, rank, x, floor, wide, n) -> None:
    high = (chunk + 0.5) * UNIT
    tip = f"chunk {chunk} of {2 * n}, rank {rank}: its queries see {chunk + 0.5:g} chunks of keys"
    box = {"x": x + 2, "y": floor - high, "width": wide - 4, "height": high}
    figure.mark("rect", **box, **HUES[rank].paint(), **OUTLINE, tip=tip)
    inside = high > 15
    look = {"text_anchor": "middle", "font_size": 11} | ({"fill": INK} if inside else {})
    figure.words(x + wide / 2, floor - high + (12 if inside else -3), f"{chunk + 0.5:g}", **look)


def _chunk(figure, chunk, rank, x, y, wide) -> None:
    """A piece of the strip, with its number."""
    box = {"x": x, "y": y + 3, "width": wide, "height": HIGH - 4}
    tip = f"chunk {chunk} is on rank {rank}"
    figure.mark("rect", **box, **HUES[rank].paint(), **OUTLINE, tip=tip)
    look = {"text_anchor": "middle", "font_size": 11, "fill": INK, "font_weight": "bold"}
    figure.words(x + wide / 2, y + 16, str(chunk), **look)


def _describe(n: int) -> str:
    sums = ", ".join(str(4 * r + 2) for r in range(n))
    pairs = ", ".join(f"{r} and {2 * n - 1 - r}" for r in range(n))
    return (
        f"Above, a strip of {2 * n} chunks in order with a rising bar over each, from 0.5 to "
        f"{2 * n - 0.5:g}. Ranks hold two neighbours, whose bars add up to {sums}. Below, the "
        f"strip is folded and ranks hold chunks {pairs}. Their bars stand on each other, and all "
        f"piles are {2 * n} high."
    )
