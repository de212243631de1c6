"""A gate's weights in blocks along the diagonal, and the ranks that hold them."""

from weft.draw import figure as svg
from weft.draw.figure import INK, OUTLINE, Figure
from weft.plan.griffin import blocks_of_rank

HUES = (svg.FORWARD, svg.INPUT_GRADIENT, svg.WEIGHT_GRADIENT, svg.WAITING)
LEFT, EACH = 62, 23
MOST = 12  # blocks to a side


def blocks_svg(blocks: int = 10, t: int = 4) -> str:
    """Inputs down, outputs across; a block is the rank's that has its inputs and its outputs."""
    each = blocks_of_rank(blocks, t)
    if blocks > MOST or t > len(HUES):
        raise ValueError(
            f"blocks is {blocks} and t is {t}, must be at most {MOST} and {len(HUES)} to be seen"
        )
    owners = [rank for rank, count in enumerate(each) for _ in range(count)]
    figure = Figure.small(
        LEFT + MOST * EACH, 62 + blocks * EACH, f"A gate of {blocks} blocks on {t} ranks",
        _describe(each), largest=1.4,
    )  # fmt: skip
    svg.legend(figure, [(f"rank {r}", HUES[r].paint() | OUTLINE) for r in range(t)])
    figure.words(LEFT, 36, "outputs: gates of the same channels", font_size=11)
    figure.words(0, 46 + blocks * EACH / 2, "inputs", font_size=11)
    for row in range(blocks):
        for column in range(blocks):
            box = {"x": LEFT + column * EACH, "y": 44 + row * EACH}
            box |= {"width": EACH - 1, "height": EACH - 1}
            if row != column:
                figure.mark("rect", **box, fill_opacity=0.05)
                continue
            rank = owners[row]
            figure.mark("rect", **box, **HUES[rank].paint(), **OUTLINE,
                        tip=f"block {row} is rank {rank}'s")  # fmt: skip
            figure.words(box["x"] + EACH / 2, box["y"] + 15, str(row), fill=INK,
                         text_anchor="middle", font_size=11)  # fmt: skip
    return str(figure)


def _describe(each: list[int]) -> str:
    counts = ", ".join(f"rank {rank} has {count}" for rank, count in enumerate(each))
    return (
        f"A square of {sum(each)} by {sum(each)} blocks, empty but for those on the diagonal: "
        f"{counts}. Each takes its own channels and gives the gates of the same channels."
    )
