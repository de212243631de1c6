"""What lies in tile memory while the tiles of scores are visited, in an order of the loops."""

from collections.abc import Sequence

from weft.draw import figure as svg
from weft.draw.attention.tiles import NAMES
from weft.draw.figure import OUTLINE, Figure
from weft.plan.attention import cuts, visits

NAME, CELL, HIGH, BETWEEN = 46, 24, 22, 42
ROWS = ("Q", "K, V", "scores", "O, μ, σ")


def lifetimes_svg(
    T: int = 10,
    S: int = 14,
    tile_q: int = 3,
    tile_k: int = 4,
    causal: bool = True,
    orders: Sequence[str] = ("fa2",),
) -> str:
    """For each order, which tile of Q, of K and V and of O is in tile memory at each visit.

    A bar is one tile from its load until it is dropped; a number says which tile. Time is
    counted in visits and runs from left to right. A bar of O with a dark end is stored there; one
    that does not begin with its row of tiles had to be loaded again.
    """
    paths = {order: visits(T, S, tile_q, tile_k, order, causal) for order in orders}
    numbers = {
        "Q": {rows.start: i for i, rows in enumerate(cuts(T, tile_q), 1)},
        "K, V": {cols.start: i for i, cols in enumerate(cuts(S, tile_k), 1)},
    }
    steps = max(map(len, paths.values()))
    figure = Figure.small(
        NAME + steps * CELL + 4,
        len(paths) * (len(ROWS) * HIGH + BETWEEN) + 20,
        f"What lies in tile memory: {T} queries, {S} keys, tiles of {tile_q} by {tile_k}",
        _describe(paths),
    )
    keys = [
        ("stays", svg.TRAVEL.paint() | OUTLINE),
        ("streams", svg.FORWARD.paint(0.4) | OUTLINE),
        ("one visit", svg.WAITING.paint() | OUTLINE),
    ]
    svg.legend(figure, [*keys, ("stored", {"fill": svg.STUCK.hexadecimal, "width": 5})])
    for panel, (order, path) in enumerate(paths.items()):
        top = 26 + panel * (len(ROWS) * HIGH + BETWEEN)
        title = "queries outside" if order == "fa2" else "keys outside"
        figure.words(0, top + 14, f"{NAMES[order]}: {title}", font_weight="bold")
        for line, name in enumerate(ROWS):
            figure.words(0, top + 22 + line * HIGH + 15, name)
        tiles = [(numbers["Q"][r.start], numbers["K, V"][c.start]) for r, c in path]
        stays, streams = svg.TRAVEL.paint(), svg.FORWARD.paint(0.4)
        q, kv = (stays, streams) if order == "fa2" else (streams, stays)
        _bars(figure, [a for a, _ in tiles], top + 22, q)
        _bars(figure, [b for _, b in tiles], top + 22 + HIGH, kv)
        _scores(figure, len(tiles), top + 22 + 2 * HIGH)
        _bars(figure, [a for a, _ in tiles], top + 22 + 3 * HIGH, q, stored=True)
    return str(figure)


def runs(tiles: list[int]) -> list[tuple[int, int, int]]:
    """Which tile, from which visit, for how many: neighbours that are alike are one.

    >>> runs([1, 1, 2, 1])
    [(1, 0, 2), (2, 2, 1), (1, 3, 1)]
    """
    found: list[tuple[int, int, int]] = []
    for at, tile in enumerate(tiles):
        if found and found[-1][0] == tile:
            found[-1] = (tile, found[-1][1], found[-1][2] + 1)
        else:
            found.append((tile, at, 1))
    return found


def _bars(figure, tiles, y, look, stored=False) -> None:
    for tile, start, long in runs(tiles):
        x, wide = NAME + start * CELL, long * CELL
        box = {"x": x + 1, "y": y + 1, "width": wide - 2, "height": HIGH - 4}
        figure.mark("rect", **box, **look, **OUTLINE)
        if stored:
            end = {"x": x + wide - 6, "y": y + 1, "width": 5, "height": HIGH - 4}
            figure.mark("rect", **end, **svg.STUCK.paint())
        figure.words(
            x + wide / 2, y + 14, str(tile), text_anchor="middle", font_size=11, fill=svg.INK
        )


def _scores(figure, visits, y) -> None:
    """A tile of scores lives for one visit and is never stored."""
    for at in range(visits):
        box = {"x": NAME + at * CELL + 5, "y": y + 3, "width": CELL - 10, "height": HIGH - 8}
        figure.mark("rect", **box, **svg.WAITING.paint(), **OUTLINE)


def _describe(paths) -> str:
    told = []
    for order, path in paths.items():
        q = len(runs([rows.start for rows, _ in path]))
        kv = len(runs([cols.start for _, cols in path]))
        told.append(
            f"{NAMES[order]}, {len(path)} visits: tiles of Q are loaded {q} times, tiles of K "
            f"and V {kv} times, and O is stored {q} times."
        )
    return (
        "What lies in tile memory, one column for each visited tile of scores. "
        + " ".join(told)
        + " A tile of scores lives for one visit and is never stored."
    )
