"""The slider of the chapter on tensor parallelism: a layer's time and memory over its ranks."""

from weft.draw.tensor import REACHED, bytes_kept, chosen_of, dense, layer_svg
from weft.explore.box import explored
from weft.plan.tensor import layer_time, wall
from weft.plan.units import amount, moment, quantity


@explored
def layer(
    t: int = 8, width: int = 8192, chip: str = "h100", link: str = "nvlink4"
) -> tuple[str, str]:
    """Computing beside sending for each t, three ways to overlap them, and what is kept."""
    picture = layer_svg(t, width, chip, link)
    device, wire = chosen_of(chip, link)
    heads = width // 128
    if t > heads:
        raise ValueError(f"t is {t}, must be at most the {heads} heads")
    ways = {
        "with nothing overlapped": "none",
        "with SP's reductions of input gradients under weight gradients": "weights",
        "in pieces": "pieces",
    }
    whole = layer_time(dense(width), 1, 1, device, wire, share=REACHED).seconds
    found = {
        way: layer_time(dense(width), 1, t, device, wire, True, overlap=how, share=REACHED).seconds
        for way, how in ways.items()
    }
    told = ", ".join(f"{moment(s, 's', s)} {way}" for way, s in found.items())
    fastest = whole / t / found["in pieces"]
    beyond = wall(width, device, wire, share=REACHED)
    stored = bytes_kept(width, t)
    less = quantity(stored["+ gather again"], "B")
    summary = (
        f"t = {t}: {told}; {amount(100 * fastest, 3)} % of the GPUs' time is computing in the last "
        f"case. Forward sends for longer than it computes beyond t = {amount(beyond, 3)}. Kept: "
        f"{quantity(stored['tensor'], 'B')}, with tokens cut as well down to {less}."
    )
    return picture, summary
