"""The slider of the chapter on retention: states beside a cache, with the baseline to choose."""

from weft.draw.retention import beside, served_svg
from weft.explore.box import explored
from weft.plan.arguments import whole
from weft.plan.hardware import CHIPS
from weft.plan.units import amount, quantity

RESERVE, PAGE = 0.1, 16  # share of the memory that is left free; tokens of a page of the cache


@explored
def served(
    T: int = 8192, batch: int = 8, kv: int = 32, state: int = 4, model: str = "6.7b"
) -> tuple[str, str]:
    """What both keep and move at one batch, and what each reaches on an A100 that it fills."""
    picture = served_svg(T, batch, kv, state, model)
    T, batch, chip = whole("T", T), whole("batch", batch), CHIPS["a100-80"]
    cache, states = beside(model, kv, state).values()
    kept = [one.bytes(batch, T, PAGE) for one in (cache, states)]
    moved = [one.moved(batch, T) for one in (cache, states)]
    memory = (1 - RESERVE) * chip.memory
    most = [one.most(memory, T, PAGE) for one in (cache, states)]
    rates = [
        one.rate(n, T, chip.bandwidth) if n else 0
        for one, n in zip((cache, states), most, strict=True)
    ]
    gain = f"{amount(rates[1] / rates[0], 3)} times" if rates[0] else "none, for none fits, to"
    summary = (
        f"At a batch of {batch} the Transformer keeps {quantity(kept[0], 'B')} and moves "
        f"{quantity(moved[0], 'B')} in a step, the RetNet {quantity(kept[1], 'B')} and "
        f"{quantity(moved[1], 'B')}: {amount(kept[0] / kept[1], 3)} times the memory, "
        f"{amount(moved[0] / moved[1], 3)} times the time where bytes decide. Into an A100 of "
        f"80 GB go {most[0]:,} and {most[1]:,} such sequences, and the RetNet's tokens per "
        f"second, at the most, are {gain} the Transformer's. States and cache are as large at "
        f"{states.state / cache.token:,.0f} tokens."
    )
    return picture, summary
