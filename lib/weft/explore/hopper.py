"""The sliders of the hopper chapter: policies, tile sizes and head widths."""

from weft.draw.hopper import schedule as draw_hopper
from weft.draw.hopper import steady
from weft.explore.box import explored
from weft.plan.hopper import POLICIES, TILES, Tile, predict, unoverlapped, work
from weft.plan.units import percent, quantity

TOKENS, COLUMNS = 16384, 2048  # the setting of the published bars: one sequence, 2048 / K heads


def _tile(K: int, keys: int, warpgroups: int, dtype: str) -> Tile:
    published = TILES.get((dtype, K, False))
    cluster = published.cluster if published else 1
    return Tile(K, keys, warpgroups, dtype=dtype, cluster=cluster)


def _predicted(policy: str, tile: Tile) -> str:
    heads = max(1, COLUMNS // tile.K)
    rate = predict(policy, tile, TOKENS, heads, 1).rate
    peak = predict(policy, tile, TOKENS, heads, 1).share
    return f"{quantity(rate, 'FLOP/s')} on an H100, {percent(peak)} of its data sheet"


@explored
def schedule(
    policy: str = "overlapped", K: int = 128, keys: int = 176, dtype: str = "bf16"
) -> tuple[str, str]:
    """Who works when under a policy, with two warpgroups and any tile, and what that comes to."""
    tile = _tile(K, keys, 2, dtype)
    picture = draw_hopper.units(policy, tile, rounds=2.5)
    clocks = 2.5 * work(tile)["tensor"]
    busy = steady(policy, tile, clocks).busy
    summary = (
        f"Tensor cores busy {percent(busy['tensor'] / clocks)} of what is shown, the exponential "
        f"unit {percent(busy['exp'] / clocks)}. A sequence of 16k: {_predicted(policy, tile)}."
    )
    return picture, summary + _warning(tile, POLICIES[policy].overlapped)


def _warning(tile: Tile, overlapped: bool) -> str:
    if tile.fits(overlapped):
        return ""
    if tile.registers(overlapped) > tile.most_registers:
        return " But its registers do not fit: it would spill, and be far slower."
    return " But its shared memory does not fit: it could not be started."


@explored
def turns(K: int = 128, keys: int = 176) -> tuple[str, str]:
    """The warpgroups without turns, with turns, and with S ahead of O as well."""
    tile = _tile(K, keys, 2, "bf16")
    names = "specialized", "pingpong", "overlapped"
    heads = max(1, COLUMNS // K)
    rates = [quantity(predict(n, tile, TOKENS, heads, 1).rate, "FLOP/s") for n in names]
    summary = (
        f"A sequence of 16k on an H100: {rates[0]} without turns, {rates[1]} in turns, "
        f"{rates[2]} with the next S ahead of O as well."
    )
    return draw_hopper.turns(names, tile), summary + _warning(tile, True)


@explored
def room(
    K: int = 128, keys: int = 176, warpgroups: int = 2, stages: int = 2, dtype: str = "bf16"
) -> tuple[str, str]:
    """Registers and shared memory of a tile, and which unit it keeps busy longest."""
    tile = Tile(K, keys, warpgroups, stages, dtype)
    busy = work(tile)
    exp, tensor = busy["exp"], busy["tensor"]
    name = f"{tile.rows} queries, {keys} keys, {K} wide, {dtype}"
    summary = (
        f"For each tile of keys the tensor cores work {tensor:.0f} clocks and the exponential unit "
        f"{exp:.0f}, {percent(exp / tensor)} of it. If the two never overlapped, an H100 at its "
        f"full clock would reach {quantity(unoverlapped(tile), 'FLOP/s')}."
    )
    return draw_hopper.room({name: tile}), summary + _warning(tile, True)
