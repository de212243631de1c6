"""The slider of the backward chapter: who waits for whose addition to dQ."""

from weft.draw.backward import steps_svg, waited
from weft.explore.box import chosen, explored
from weft.plan.backward import additions
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
    held = len(steps) + waited(steps)
    title = f"{tiles} programs, {adds}"
    return steps_svg(steps, tiles, title), (
        f"While programs hold their multiprocessors, they compute {percent(len(steps) / held)} of "
        "the time. One that has ended leaves its place to another head; one that waits does not."
    )
