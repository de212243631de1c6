"""The slider of the backward chapter: who waits for whose addition to dQ."""

from weft.draw.backward import steps_svg
from weft.explore.box import chosen, explored
from weft.plan.backward import additions, used
from weft.plan.units import percent

MASKS = {"causal": True, "none": False}  # whether it is causal
ADDS = {"atomic": False, "ordered": True}  # whether additions to a dQ have one order


@explored
def jam(
    mask: str = "causal",
    rows: str = "up",
    adds: str = "ordered",
    tiles: int = 6,
    handoff: int = 0,
) -> tuple[str, str]:
    """One head of so many tiles on as many multiprocessors; a hand-off in per cent of a step."""
    causal = chosen("mask", mask, MASKS)
    ordered = chosen("adds", adds, ADDS)
    game = {"heads": 1, "sms": tiles, "causal": causal, "handoff": handoff / 100}
    steps = additions(tiles, tiles, rows=rows, ordered=ordered, **game)
    free = used(additions(tiles, tiles, ordered=False, **game), tiles)
    share = used(steps, tiles)
    title = f"{tiles} programs, {adds}"
    return steps_svg(steps, tiles, title), (
        f"The multiprocessors compute {percent(share)} of the time; with atomic additions, from "
        f"the first query that sees the keys, {percent(free)}. A program that has ended leaves its "
        "place to another head; one that waits does not."
    )
