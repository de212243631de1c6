"""The sliders of the roofline chapter: matmuls, levels, attention, fusion and whole layers."""

from collections.abc import Mapping

from weft.draw import roofline as draw_roofline
from weft.draw.roofline import intensity
from weft.explore.box import chosen, explored
from weft.plan import gpu, roofline
from weft.plan.arguments import sizes, whole
from weft.plan.hardware import CHIPS, LINKS, Chip, size_of
from weft.plan.roofline import (
    CHAINS,
    Work,
    attainable,
    layer,
    ridge,
    seconds,
    smallest_batch,
    spent,
    total,
    wall,
)
from weft.plan.shape import SHAPES
from weft.plan.units import amount, percent, quantity

TILES = {"64x64": (64, 64), "128x128": (128, 128), "128x256": (128, 256), "256x256": (256, 256)}


def _bound(work: Work, chip: Chip, dtype: str) -> str:
    """How far from its compute roof a work has to stay, and why."""
    share = attainable(work, chip, dtype) / chip.rate(dtype)
    if wall(work, chip, dtype) == "compute":
        return "bound by compute: all of the rate is within reach"
    return f"bound by memory: at most {percent(share)} of the rate is within reach"


@explored
def matmul(
    chip: str = "h100", dtype: str = "bf16", rows: int = 32, side: int = 4096
) -> tuple[str, str]:
    """Some rows times a square matrix of a side: from matvec to matmul."""
    on, size = chosen("chip", chip, CHIPS), size_of(dtype)
    m, n = sizes(rows=rows, side=side)
    work = roofline.matmul(m, n, n, size)
    enough = smallest_batch(n, n, size, on, dtype)
    needs = (
        f"{enough} rows reach the ridge at {amount(ridge(on, dtype))}"
        if enough
        else f"no number of rows reaches the ridge at {amount(ridge(on, dtype))}"
    )
    summary = (
        f"{intensity(work)} FLOPs per byte, {_bound(work, on, dtype)}. {needs.capitalize()}. "
        f"Least time {quantity(seconds(work, on, dtype), 's')}, of which the weights alone take "
        f"{quantity(n * n * size / on.bandwidth, 's')} to read."
    )
    points = {
        f"{m} × {n} by {n} × {n}": work,
        "one row": roofline.matmul(1, n, n, size),
        "as many rows as columns": roofline.matmul(n, n, n, size),
    }
    return draw_roofline.svg(points, [(on, dtype)], span=(0.1, 1e4)), summary


@explored
def rows(chip: str = "h100", rows: int = 1, side: int = 4096, launch: int = 6) -> tuple[str, str]:
    """Three walls of some rows times a square weight in 16 bits; `launch` in microseconds."""
    on = chosen("chip", chip, CHIPS)
    dtype = "bf16" if "bf16" in on.rates else "fp16"
    m, n, launch = sizes(rows=rows, side=side, launch=launch)
    picture = draw_roofline.rows_svg(n, on, dtype, launch / 1e6, m)
    here = gpu.walls(roofline.matmul(m, n, n, 2), on, dtype, launch / 1e6)
    summary = (
        f"{m} {'row' if m == 1 else 'rows'}: launch {quantity(here.launch, 's')}, bytes "
        f"{quantity(here.memory, 's')}, FLOPs {quantity(here.compute, 's')}. The wall is "
        f"{here.wall}; {quantity(here.seconds / m, 's')} for each row."
    )
    return picture, summary


@explored
def attention(
    chip: str = "h100", length: int = 4096, width: int = 128, sram: int = 0
) -> tuple[str, str]:
    """Naive and flash attention at `length` tokens; `sram` KiB for flash's tiles, 0 for no limit.

    Of one head, at two bytes an element.
    """
    on = chosen("chip", chip, CHIPS)
    T, dtype = whole("length", length), "bf16" if "bf16" in on.rates else "fp16"
    naive = roofline.attention(T, T, 1, width, 2)
    flash = roofline.attention(T, T, 1, width, 2, "flash", sram=1024 * sram or None)
    times = [seconds(work, on, dtype) for work in (naive, flash)]
    summary = (
        f"T = {T:,}: both take {quantity(flash.flops, 'FLOP')}. Naive moves "
        f"{quantity(naive.bytes, 'B')} and is bound by {wall(naive, on, dtype)}, flash "
        f"{quantity(flash.bytes, 'B')} and is bound by {wall(flash, on, dtype)}; at best it is "
        f"{amount(times[0] / times[1], 2)} times as fast."
    )
    points = {"naive, scores in memory": naive, "flash, scores on the chip": flash}
    return draw_roofline.svg(points, [(on, dtype)], span=(1, 1e5)), summary


@explored
def levels(
    chip: str = "h100", rows: int = 4096, t: int = 8, tile: str = "128x256", link: str = "nvlink4"
) -> tuple[str, str]:
    """One rank's part of Llama 2 70B's first MLP matrix, at memory, at the L2 cache, at a link."""
    on, between = chosen("chip", chip, CHIPS), chosen("link", link, LINKS)
    tile_m, tile_n = chosen("tile", tile, TILES)
    m, t = sizes(rows=rows, t=t)
    shape = SHAPES["llama2-70b"]
    k, n = shape.matrices["up"]
    seen = roofline.column_parallel(m, n, k, chip, between, t, tile_m, tile_n)
    name, least = roofline.slowest(seen, on, "bf16")
    compute = seen[0].work.flops / on.rate("bf16")
    summary = (
        f"{m} rows by a weight of {k} × {n // t}: the tensor cores need "
        f"{quantity(compute, 's')}, all levels at once {quantity(least, 's')}. "
        f"{'The tensor cores take' if name == 'compute' else name + ' takes'} longest."
    )
    return draw_roofline.levels_svg(seen, on, "bf16"), summary


@explored
def fusion(chip: str = "h100", chain: str = "gelu", kernels: int = 8) -> tuple[str, str]:
    """A chain of elementwise steps, cut into that many kernels of about equally many steps."""
    on, steps = chosen("chip", chip, CHIPS), chosen("chain", chain, CHAINS)
    n, size = 2**26, 2
    now = roofline.in_kernels(n, size, steps, kernels)
    one, each = (roofline.in_kernels(n, size, steps, k) for k in (1, len(steps)))
    time, best, worst = (seconds(work, on, "fp32") for work in (now, one, each))
    summary = (
        f"{len(steps)} steps on {n:,} elements of two bytes in {kernels} "
        f"{'kernel' if kernels == 1 else 'kernels'}: {quantity(now.bytes, 'B')}, "
        f"{quantity(time, 's')}. "
        f"In one kernel {quantity(best, 's')}, each in its own {quantity(worst, 's')}, "
        f"{amount(worst / best, 2)} times as long; the FLOPs never change."
    )
    points = {f"in {kernels}": now, "in one kernel": one, "each in its own": each}
    return draw_roofline.svg(points, [(on, "fp32")], span=(0.1, 100)), summary


@explored
def transformer(
    chip: str = "h100", model: str = "gpt3-175b", batch: int = 1, algorithm: str = "flash"
) -> tuple[str, str]:
    """One layer's forward on `batch` sequences, operation by operation."""
    on, shape = chosen("chip", chip, CHIPS), chosen("model", model, SHAPES)
    dtype = "bf16" if "bf16" in on.rates else "fp16"
    parts = layer(shape, batch, 2, algorithm)
    times = spent(parts, on, dtype)
    step = sum(times.values())
    slow = sum(time for name, time in times.items() if wall(parts[name], on, dtype) == "memory")
    summary = (
        f"{batch * shape.seq:,} tokens: {quantity(step, 's')} at best if one operation follows "
        f"another, of which {percent(slow / step)} for operations bound by memory that do "
        f"{amount(100 * _share(parts, on, dtype), 2)} % of the FLOPs."
    )
    return draw_roofline.svg(parts, [(on, dtype)], span=(0.1, 1e4)), summary


def _share(parts: Mapping[str, Work], chip: Chip, dtype: str) -> float:
    """The share of the FLOPs in operations that are bound by memory."""
    slow = {name: work for name, work in parts.items() if wall(work, chip, dtype) == "memory"}
    return total(slow).flops / total(parts).flops
