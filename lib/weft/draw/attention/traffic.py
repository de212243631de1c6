"""Bytes moved over the size of the tile memory: the theorem as lines, exact counts as points."""

from weft.draw import figure as svg
from weft.draw.figure import Figure, Log, number
from weft.plan.arguments import sizes
from weft.plan.attention import footprint, tiles, traffic
from weft.plan.units import quantity

WIDE, HIGH = 480, 330
KIB = 1024
WIDEST = 128
MEMORIES = (32, 48, 64, 96, 128, 164, 228, 320, 448)  # KiB; 164 and 228 are an A100 and an H100
DASHES = {"naive": "2 3", "fa1": "7 3", "fa2": "none"}
NAMES = {"naive": "three passes", "fa1": "FlashAttention-1", "fa2": "FlashAttention-2"}


def traffic_svg(
    N: int = 4096, d: int = 64, size: int = 2, sram: int = 64, causal: bool = False
) -> str:
    """Bytes that one head moves against KiB of tile memory, N queries and keys of width d.

    Points are exact counts with the tiles that fit; lines are the closed form with tiles and
    visits that need not be whole, which falls as N^2 d^2 / M once the outputs no longer count.
    Nothing moves less than Q, K, V and O, once each: the line at the bottom.
    """
    N, d, size, sram = sizes(N=N, d=d, size=size, sram=sram)
    if sram not in MEMORIES:
        raise ValueError(f"sram is {sram} KiB, must be one of {', '.join(map(str, MEMORIES))}")
    if d > WIDEST:
        raise ValueError(f"d is {d}, must be at most {WIDEST}: a sliver of 16 has to fit")
    least = 4 * N * d * size
    counts = {o: [moved(N, d, size, m, o, causal) for m in MEMORIES] for o in NAMES}
    high = max(max(counts["naive"]), max(counts["fa1"]))
    x = Log(MEMORIES[0], MEMORIES[-1], 58, WIDE - 14)
    y = Log(least / 2, 2 * high, HIGH - 44, 78)
    figure = Figure(
        WIDE,
        HIGH,
        f"Bytes moved over tile memory: N = {N}, d = {d}, {size} bytes each",
        _describe(N, d, counts, sram, least),
        least=WIDE * 0.73,
        largest=WIDE * 1.25,
    )
    _axes(figure, x, y)
    _legend(figure)
    figure.line(x.start, y(least), x.stop, y(least), stroke_width=1.25, stroke_opacity=0.6)
    figure.words(x.start + 6, y(least) - 5, "Q, K, V and O once", font_size=11)
    for order in NAMES:
        _curve(figure, N, d, size, order, causal, counts[order], x, y)
    chosen = counts["fa2"][MEMORIES.index(sram)]
    figure.mark("circle", cx=x(sram), cy=y(chosen), r=8, fill="none", **_ring())
    return str(figure)


def moved(N: int, d: int, size: int, sram: int, order: str, causal: bool = False) -> int:
    """Bytes read and written, exactly, with the tiles that fit into `sram` KiB."""
    cut = tiles(sram * KIB, d, d, size, "fa1" if order == "fa1" else "fa2")
    return sum(traffic(N, N, d, d, size, *cut, order, causal))


def smooth(N: int, d: int, size: int, sram: float, order: str, causal: bool = False) -> float:
    """The closed form of `moved`, with tiles and numbers of visits that need not be whole.

    Causal attention looks at half of the tiles, and at half a tile more for each row of them.
    """
    flash, statistic = "fa1" if order == "fa1" else "fa2", max(4, size)

    def needs(stays: int) -> int:
        pair = (16, stays) if flash == "fa1" else (stays, 16)
        return footprint(*pair, d, d, size, flash, causal=True)

    each = needs(2) - needs(1)
    stays = min(N, (sram * KIB - needs(1) + each) / each)
    rows = N / stays
    if causal and order != "naive":
        rows = rows / 2 + 0.5
    if order == "naive":
        return (4 * N * N + 2 * N * d + rows * N * 2 * d) * size
    if order == "fa1":
        state = d * size + 2 * statistic
        return 2 * N * d * size + rows * N * (d * size + state) + (1 + rows) * N * state
    return N * d * size + rows * N * 2 * d * size + N * (d * size + statistic)


def _curve(figure, N, d, size, order, causal, counts, x, y) -> None:
    steps = 48
    memories = [x.low * (x.high / x.low) ** (i / steps) for i in range(steps + 1)]
    line = "L".join(
        f"{number(x(m))} {number(y(smooth(N, d, size, m, order, causal)))}" for m in memories
    )
    look = {"stroke_width": 2.5 if order == "fa2" else 1.25, "stroke_dasharray": DASHES[order]}
    figure.mark("path", d=f"M{line}", fill="none", stroke="currentColor", **look)
    for memory, count in zip(MEMORIES, counts, strict=True):
        tip = f"{NAMES[order]}, {memory} KiB: {quantity(count, 'B')}"
        figure.mark("circle", cx=x(memory), cy=y(count), r=3.5, tip=tip)


def _axes(figure: Figure, x: Log, y: Log) -> None:
    figure.words(0, y.stop - 10, "bytes moved by one head", font_size=11)
    with figure.group(font_size=11, text_anchor="end"):
        for tick in y.ticks((1,) if y.high / y.low > 1500 else (1, 2, 5)):
            figure.line(x.start, y(tick), x.stop, y(tick), stroke_opacity=0.15)
            figure.words(x.start - 6, y(tick) + 4, quantity(tick, "B"))
    with figure.group(text_anchor="middle", font_size=11):
        for memory in MEMORIES:
            figure.line(x(memory), y.start, x(memory), y.start + 4)
            figure.words(x(memory), y.start + 17, str(memory))
    figure.line(x.start, y.start, x.stop, y.start)
    figure.words((x.start + x.stop) / 2, y.start + 36, "KiB of tile memory", text_anchor="middle")


def _legend(figure: Figure) -> None:
    left = 0.0
    for order, name in NAMES.items():
        width = 2.5 if order == "fa2" else 1.25
        figure.line(left, 10, left + 28, 10, stroke_width=width, stroke_dasharray=DASHES[order])
        figure.words(left + 34, 14, name)
        left += 34 + svg.measure(name) + 14
    figure.mark("circle", cx=8, cy=31, r=3.5)
    figure.words(22, 35, "counted exactly")
    figure.mark("circle", cx=148, cy=31, r=7, fill="none", **_ring())
    figure.words(162, 35, "chosen")


def _ring() -> dict:
    colour = svg.STUCK
    live = f"stroke:var(--{colour.variable},{colour.hexadecimal})"
    return {"stroke": colour.hexadecimal, "stroke_width": 3, "style": live}


def _describe(N, d, counts, sram, least) -> str:
    ends = "; ".join(
        f"{NAMES[o]} from {quantity(c[0], 'B')} to {quantity(c[-1], 'B')}"
        for o, c in counts.items()
    )
    chosen = counts["fa2"][MEMORIES.index(sram)]
    return (
        f"Bytes that one head of {N} queries and keys of width {d} moves, over tile memory from "
        f"{MEMORIES[0]} to {MEMORIES[-1]} KiB, both axes logarithmic: {ends}. The two "
        f"FlashAttentions fall along a straight line, towards the {quantity(least, 'B')} of Q, K, "
        f"V and O; three passes stay level. Ringed: {sram} KiB, where FlashAttention-2 moves "
        f"{quantity(chosen, 'B')}."
    )
