"""FlashAttention-2 beside FlashAttention-1: which loop is outside, and what the warps split."""

from itertools import groupby

from weft.draw import figure as svg
from weft.draw.attention.tiles import NAMES
from weft.draw.figure import OUTLINE, Figure, Scale, number
from weft.plan.arguments import sizes
from weft.plan.attention import cuts, shared, traffic, visits
from weft.plan.units import quantity

PANEL, BETWEEN = 242, 16
SIDE, STRIP, GAP = 150, 14, 6  # the longer side of the matrix; the width of Q, K, V and O
TILE = 72  # the tile that the warps share, at its longer side
ORDERS = ("fa2", "fa1")
OUTSIDE = {"fa2": "a program for each tile of Q", "fa1": "one program, K and V outside"}
SPLIT = {"fa1": "k", "fa2": "q"}
SPLITS = {"fa1": "Warps split K and V", "fa2": "Warps split Q"}


def orders_svg(
    T: int = 640,
    S: int = 896,
    K: int = 64,
    V: int = 64,
    size: int = 2,
    tile_q: int = 128,
    tile_k: int = 192,
    warps: int = 4,
    causal: bool = False,
) -> str:
    """Both loop orders over the same tiles, an arrow for each program; below, one tile.

    What stays in tile memory during the inner loop is marked. FlashAttention-2 has a program for
    each tile of queries, FlashAttention-1 one for the head. The bytes are one head's, counted by
    weft.plan.attention.traffic and weft.plan.attention.warps.shared.
    """
    given = sizes(T=T, S=S, K=K, V=V, size=size, tile_q=tile_q, tile_k=tile_k, warps=warps)
    T, S, K, V, size, tile_q, tile_k, warps = given
    high = SIDE * T / max(T, S)
    moved = {o: traffic(T, S, K, V, size, tile_q, tile_k, o, causal) for o in ORDERS}
    passed = {o: shared(T, S, K, V, size, tile_q, tile_k, warps, SPLIT[o], causal) for o in ORDERS}
    middle = 92 + high + 68
    figure = Figure(
        2 * PANEL + BETWEEN,
        middle + 12 + TILE * tile_q / max(tile_q, tile_k) + 42,
        f"Loop order and warps of FlashAttention-2 and -1, {T} queries and {S} keys",
        _describe(T, S, tile_q, tile_k, warps, moved, passed),
        largest=(2 * PANEL + BETWEEN) * 1.2,
    )
    for i, order in enumerate(ORDERS):
        with figure.group(transform=f"translate({number(i * (PANEL + BETWEEN))} 0)"):
            _loops(figure, order, T, S, tile_q, tile_k, causal, moved[order])
            _warps(figure, order, middle, tile_q, tile_k, warps, passed[order])
    return str(figure)


def _loops(figure, order, T, S, tile_q, tile_k, causal, moved) -> None:
    """The matrix with a line through its tiles in the order of visits, and its four strips."""
    figure.words(0, 14, NAMES[order], font_weight="bold")
    figure.words(0, 32, OUTSIDE[order])
    each = SIDE / max(T, S)
    left, top = STRIP + GAP, 92
    x, y = Scale(0, S, left, left + each * S), Scale(0, T, top, top + each * T)
    path = visits(T, S, tile_q, tile_k, order, causal)
    across = [(x(c.start), x(c.stop) - x(c.start)) for c in cuts(S, tile_k)]
    down = [(y(r.start), y(r.stop) - y(r.start)) for r in cuts(T, tile_q)]
    keys = [(at, top, wide, STRIP) for top in (52, 70) for at, wide in across]
    queries = [(left, at, STRIP, high) for left in (0, x.stop + GAP) for at, high in down]
    first = {"fa1": (keys[0], keys[len(across)]), "fa2": (queries[0], queries[len(down)])}
    figure.boxes(keys + queries, fill_opacity=0.12, **OUTLINE)
    figure.boxes(first[order], **svg.TRAVEL.paint(), **OUTLINE)
    scores = [
        (x(c.start), y(r.start), x(c.stop) - x(c.start), y(r.stop) - y(r.start)) for r, c in path
    ]
    figure.boxes(scores, **svg.FORWARD.paint(0.4), **OUTLINE)
    for _, part in groupby(path, lambda tile: order == "fa2" and tile[0].start):
        centres = [((x(c.start) + x(c.stop)) / 2, (y(r.start) + y(r.stop)) / 2) for r, c in part]
        _walk(figure, centres)
    with figure.group(font_size=11, font_weight="bold"):
        figure.words(x.stop + GAP, 63, "K")
        figure.words(x.stop + GAP, 81, "V")
        figure.words(2, y.stop + 14, "Q")
        figure.words(x.stop + GAP + 2, y.stop + 14, "O")
    figure.words(
        0, y.stop + 34, f"reads {quantity(moved[0], 'B')}, writes {quantity(moved[1], 'B')}"
    )


def _walk(figure: Figure, points: list[tuple[float, float]]) -> None:
    """A line through these points with an arrow's head at the end and a dot at the start."""
    line = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    with figure.group(stroke=svg.INK):
        figure.mark("path", d=f"M{line}", fill="none", stroke_width=1.5, stroke_linejoin="round")
    figure.mark("circle", cx=points[0][0], cy=points[0][1], r=4, fill=svg.INK)
    if len(points) > 1:
        (x0, y0), (x1, y1) = points[-2:]
        long = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        ux, uy = (x1 - x0) / long, (y1 - y0) / long
        head = [(x1 + 4 * ux, y1 + 4 * uy)]
        head += [(x1 - 6 * ux - s * 5 * uy, y1 - 6 * uy + s * 5 * ux) for s in (1, -1)]
        corners = "L".join(f"{number(x)} {number(y)}" for x, y in head)
        figure.mark("path", d=f"M{corners}z", fill=svg.INK)


def _warps(figure, order, top, tile_q, tile_k, warps, passed) -> None:
    """One tile of scores among the warps, and what each of them has of the output."""
    figure.words(0, top, SPLITS[order], font_weight="bold")
    each = TILE / max(tile_q, tile_k)
    wide, high = tile_k * each, tile_q * each
    at = top + 12
    out, share = wide + 30, 16
    for w in range(warps):
        look = svg.FORWARD.paint(0.7 * w / max(1, warps - 1)) | OUTLINE
        if order == "fa1":
            band = wide / warps
            figure.mark("rect", x=w * band, y=at, width=band, height=high, **look)
            part = out + w * (share + 4)
            figure.mark("rect", x=part, y=at, width=share, height=high, **look)
        else:
            band = high / warps
            figure.mark("rect", x=0, y=at + w * band, width=wide, height=band, **look)
            figure.mark("rect", x=out, y=at + w * band, width=share, height=band, **look)
    arrow = {"text_anchor": "middle", "font_size": 14}
    figure.words(wide + 15, at + high / 2 + 5, "→", **arrow)
    if order == "fa1" and warps > 1:
        end = out + warps * (share + 4)
        figure.words(end + 19, at + high / 2 + 5, "→ Σ →", **arrow)
        figure.mark(
            "rect", x=end + 42, y=at, width=share, height=high, **svg.TRAVEL.paint(), **OUTLINE
        )
        figure.words(end + 42 + share / 2, at + high + 13, "O", text_anchor="middle", font_size=11)
        figure.words(out, at + high + 13, "parts of O", font_size=11)
    else:
        figure.words(out + share / 2, at + high + 13, "O", text_anchor="middle", font_size=11)
    figure.words(0, at + high + 13, "scores", font_size=11)
    told = quantity(passed.exchanged, "B") if passed.exchanged else "nothing"
    figure.words(0, at + high + 32, f"exchange {told}")


def _describe(T, S, tile_q, tile_k, warps, moved, passed) -> str:
    first, second = ([quantity(nbytes, "B") for nbytes in moved[o]] for o in ORDERS)
    return (
        f"Two matrices of {T} queries by {S} keys in tiles of {tile_q} by {tile_k}, side by side. "
        "Left, FlashAttention-2: an arrow along each row, a program of its own; a tile of Q and O "
        f"stays while K and V pass; {first[0]} read, {first[1]} written. "
        "Right, FlashAttention-1: one line runs down column after column; a tile of K and V stays "
        f"while Q and O pass; {second[0]} read, {second[1]} written. Below, one tile "
        f"among {warps} warps: left in rows, so that each has rows of the output and nothing is "
        "exchanged; right in columns, so that each warp has a part of the whole output and "
        f"{quantity(passed['fa1'].exchanged, 'B')} pass through shared memory."
    )
