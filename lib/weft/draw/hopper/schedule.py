"""Who works when on one multiprocessor, and what fits in it: pictures of FlashAttention-3."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Colour, Figure, Scale, measure
from weft.plan.hopper import (
    ROWS,
    SM,
    THREADS,
    TILES,
    UNITS,
    Played,
    Policy,
    Stretch,
    Tile,
    kernel,
    play,
    work,
)
from weft.plan.units import amount, percent

WIDE, LEFT, RIGHT = 640, 104, 42
TOP, ROW, CELL, HEAD, AXIS = 28, 26, 22, 22, 26
WARM = 4  # tiles of keys before a picture begins
GROUPS = (  # a hue for each warpgroup; matmuls full, the rest with white
    Colour("weft-group-1", "#56A3D9"),
    Colour("weft-group-2", "#CC79A7"),
    Colour("weft-group-3", "#A3A35C"),
)
WHITE = {"S": 0.0, "O": 0.4}
NAMES = {
    "simple": "all warps load and compute",
    "not_specialized": "all warps load, S ahead of O",
    "specialized": "a loading warp",
    "pingpong": "a loading warp, matmuls in turns",
    "no_turns": "a loading warp, S ahead of O",
    "overlapped": "FlashAttention-3: a loading warp, turns, S ahead of O",
}
LABELS = {
    "tensor": "tensor cores",
    "exp": "exponentials",
    "alu": "max and pack",
    "fp32": "rescale",
    "load": "loads (TMA)",
}
LIMIT = svg.STUCK.stroke(2)


# --- when -----------------------------------------------------------------------------------------


def steady(policy: Policy | str, tile: Tile, clocks: float) -> Played:
    """What happens in some clocks, long after the start: from a matmul S of warpgroup 1 on."""
    most = max(work(tile).values())
    counts = [WARM + 2 + ceil(clocks / most)]
    played = play(kernel(policy, tile, counts))
    begins = (x.start for x in played.stretches if (x.agent, *x.step) == ("1", "S", WARM))
    start = next(begins)
    return played.between(start, start + clocks)


def units(
    policy: str = "overlapped",
    tile: Tile = TILES["bf16", 128, False],
    rounds: float = 2.5,
) -> str:
    """What each unit works at, in the colour of the warpgroup that it works for.

    `rounds` is the length of the picture in tiles of keys, counted in tensor-core work: pictures
    of one tile share their time axis, whatever the policy.
    """
    clocks = length(tile, rounds)
    played = steady(policy, tile, clocks)
    x = Scale(0, clocks, LEFT, WIDE - RIGHT)
    bottom = TOP + len(UNITS) * ROW
    title = f"Who works when: {NAMES[policy]}"
    figure = Figure(WIDE, bottom + AXIS, title, _describe_units(played, clocks, tile))
    svg.legend(figure, _keys(tile, loads=True))
    svg.time_axis(figure, x, TOP, bottom, clocks, "clocks")
    for row, unit in enumerate(UNITS):
        y = TOP + row * ROW + 2
        figure.words(0, y + 15, LABELS[unit])
        track(figure, x, y, CELL)
        cells(figure, (s for s in played.stretches if s.unit == unit), x, y, CELL)
    return str(figure)


def turns(
    policies: Sequence[str] = ("specialized", "pingpong", "overlapped"),
    tile: Tile = TILES["bf16", 128, False],
    rounds: float = 2.5,
) -> str:
    """The warpgroups under some policies: matmuls in the upper half of a row, softmax below."""
    if not policies:
        raise ValueError("policies is empty, must hold at least one")
    clocks = length(tile, rounds)
    games = [steady(policy, tile, clocks) for policy in policies]
    x = Scale(0, clocks, LEFT, WIDE - RIGHT)
    step = HEAD + tile.warpgroups * ROW + 6
    bottom = TOP + len(games) * step
    title = "Warpgroups compared: " + "; ".join(NAMES[policy] for policy in policies)
    told = " ".join(
        f"{NAMES[policy]}: {_describe_turns(game, clocks, tile)}"
        for policy, game in zip(policies, games, strict=True)
    )
    figure = Figure(WIDE, bottom + AXIS, title, told)
    svg.legend(figure, _keys(tile))
    for i, (policy, game) in enumerate(zip(policies, games, strict=True)):
        top = TOP + i * step
        figure.words(0, top + 15, NAMES[policy], font_weight="bold")
        share = f"tensor cores busy {percent(_busy(game, 'tensor') / clocks)}"
        figure.words(x.stop, top + 15, share, text_anchor="end")
        svg.time_lines(figure, x, top + HEAD, top + step - 6, clocks, "clocks")
        for group in range(tile.warpgroups):
            y = top + HEAD + group * ROW + 2
            figure.words(0, y + 15, f"warpgroup {group + 1}")
            track(figure, x, y, CELL)
            mine = [s for s in game.stretches if s.agent == str(group + 1)]
            cells(figure, (s for s in mine if s.unit == "tensor"), x, y, CELL / 2)
            cells(figure, (s for s in mine if s.unit in VECTOR), x, y + CELL / 2, CELL / 2)
    svg.time_labels(figure, x, bottom + 16, clocks, "clocks")
    return str(figure)


VECTOR = ("exp", "alu", "fp32")


def length(tile: Tile, rounds: float) -> float:
    """The clocks of so many tiles of keys, counted in tensor-core work."""
    if not 0 < rounds <= 20:
        raise ValueError(f"rounds is {rounds}, must be above 0 and at most 20")
    return rounds * work(tile)["tensor"]


def _busy(played: Played, unit: str) -> float:
    return played.busy.get(unit, 0.0)


def track(figure: Figure, x: Scale, y: float, high: float) -> None:
    """The ground of a row, on which cells lie."""
    figure.boxes([(x.start, y, x.stop - x.start, high)], fill_opacity=0.06)


def _paint(stretch: Stretch) -> dict:
    """The warpgroup's hue; loads have that of what travels."""
    if stretch.unit == "load":
        return svg.TRAVEL.paint()
    return GROUPS[int(stretch.agent) - 1].paint(white=WHITE.get(stretch.step.kind, 0.6))


def cells(figure: Figure, stretches: Iterable[Stretch], x: Scale, y: float, high: float) -> None:
    """A box for each stretch, with its name where there is room for it."""
    stretches = list(stretches)
    for s in stretches:
        tip = f"{s.step} of {_who(s.agent)}, {amount(s.start)} to {amount(s.end)}"
        box = {"x": x(s.start), "y": y, "width": x(s.end) - x(s.start), "height": high}
        figure.mark("rect", tip=tip, **box, **_paint(s), **OUTLINE)
    size = min(11, high - 1)
    with figure.group(pointer_events="none", font_size=size, text_anchor="middle", fill=svg.INK):
        for s in stretches:
            if x(s.end) - x(s.start) > measure(str(s.step), size) + 2:
                middle = (x(s.start) + x(s.end)) / 2
                figure.words(middle, y + high / 2 + size * 0.36, str(s.step))


def _who(agent: str) -> str:
    return "the loading warp" if agent == "load" else f"warpgroup {agent}"


def _keys(tile: Tile, loads: bool = False) -> list[svg.Key]:
    first, *others = (
        (f"warpgroup {i + 1}", hue) for i, hue in enumerate(GROUPS[: tile.warpgroups])
    )
    name, hue = first
    keys = [(f"{name}: S", hue.paint()), ("O", hue.paint(white=WHITE["O"]))]
    keys += [("softmax", hue.paint(white=0.6))]
    keys += [(name, hue.paint()) for name, hue in others]
    return [*keys, ("K, V, Q", svg.TRAVEL.paint())] if loads else keys


def _describe_units(played: Played, clocks: float, tile: Tile) -> str:
    told = [
        f"A row for each unit over {amount(clocks)} clocks, with a box for each stretch of work. "
        f"Tiles of {tile.keys} keys, {tile.K} wide, {tile.warpgroups} warpgroups."
    ]
    for unit in UNITS:
        share = percent(_busy(played, unit) / clocks)
        told.append(f"{LABELS[unit].capitalize()}: busy {share} of the time.")
    return " ".join(told)


def _describe_turns(played: Played, clocks: float, tile: Tile) -> str:
    told = [f"tensor cores busy {percent(_busy(played, 'tensor') / clocks)}."]
    for group in range(tile.warpgroups):
        order = [
            str(s.step)
            for s in played.stretches
            if s.agent == str(group + 1) and s.unit in ("tensor", "exp")
        ]
        told.append(f"Warpgroup {group + 1} works at {' '.join(order)}.")
    return " ".join(told)


# --- where ----------------------------------------------------------------------------------------


def room(tiles: Mapping[str, Tile]) -> str:
    """Registers of a consumer thread and shared memory of a block, against what there is.

    One pair of bars for each tile, under its name; a line marks the limit of each.
    """
    if not tiles:
        raise ValueError("tiles is empty, must hold at least one")
    bottom = TOP + len(tiles) * (HEAD + 2 * ROW)
    title = "What fits: registers and shared memory"
    figure = Figure(WIDE, bottom + 4, title, _describe_room(tiles))
    svg.legend(figure, list(PARTS.items()))
    for i, (name, tile) in enumerate(tiles.items()):
        top = TOP + i * (HEAD + 2 * ROW)
        figure.words(0, top + 15, name, font_weight="bold")
        verdict = "fits" if tile.fits(True) else "does not fit"
        figure.words(WIDE - RIGHT, top + 15, verdict, text_anchor="end")
        registers, shared = _registers(tile), _shared(tile)
        _bar(figure, registers, tile.most_registers, top + HEAD, "registers", "")
        _bar(figure, shared, SM.shared // 1024, top + HEAD + ROW, "shared memory", " KiB")
    return str(figure)


PARTS = {
    "Q, O": svg.FORWARD.paint(white=0.2),
    "S, K": svg.FORWARD.paint(white=0.6),
    "P, V": svg.TRAVEL.paint(white=0.3),
    "the rest": {"fill": "currentColor", "fill_opacity": 0.25},
}


def _registers(tile: Tile) -> dict[str, float]:
    """O, S, P and the rest, in registers of one thread, P beside S: the two matmuls overlap."""
    o, s = ROWS * tile.K // THREADS, ROWS * tile.keys // THREADS
    total = tile.registers(True)
    p = total - tile.registers(False)
    return {"Q, O": o, "S, K": s, "P, V": p, "the rest": total - o - s - p}


def _shared(tile: Tile) -> dict[str, float]:
    """Q and the stages of K and V, in KiB."""
    each = tile.stages * tile.keys * tile.K * tile.size / 1024
    return {"Q, O": tile.rows * tile.K * tile.size / 1024, "S, K": each, "P, V": each}


def _bar(
    figure: Figure, parts: dict[str, float], limit: float, y: float, label: str, unit: str
) -> None:
    """Parts beside each other, and the limit as a line that crosses them."""
    total = sum(parts.values())
    x = Scale(0, max(1.5 * limit, total), LEFT, WIDE - RIGHT - 110)
    figure.words(0, y + 17, label)
    at = 0.0
    for name, part in parts.items():
        tip = f"{name}: {amount(part)}{unit}"
        box = {"x": x(at), "y": y + 4, "width": x(at + part) - x(at), "height": CELL - 4}
        figure.mark("rect", tip=tip, **box, **PARTS[name])
        at += part
    figure.mark("path", d=f"M{svg.number(x(limit))} {svg.number(y)}v{CELL + 2}", **LIMIT)
    figure.words(
        WIDE - RIGHT, y + 17, f"{amount(total)} of {amount(limit)}{unit}", text_anchor="end"
    )


def _describe_room(tiles: Mapping[str, Tile]) -> str:
    told = ["Two bars for each tile, with a line at the limit."]
    for name, tile in tiles.items():
        verdict = "fits" if tile.fits(True) else "does not fit"
        told.append(
            f"{name}: {tile.registers(True)} of {tile.most_registers} registers and "
            f"{amount(tile.shared / 1024)} of {SM.shared // 1024} KiB, {verdict}."
        )
    return " ".join(told)
