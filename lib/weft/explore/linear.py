"""The slider of the chapter on linear attention: length, chunk and head against FlashAttention."""

from weft.draw.linear import costs_svg, token_seconds
from weft.explore.box import explored
from weft.plan.arguments import sizes
from weft.plan.hardware import CHIPS
from weft.plan.linear import REGISTERS, break_even, on_chip, work
from weft.plan.roofline import ridge, wall
from weft.plan.units import amount, binary, quantity


@explored
def costs(T: int = 8192, width: int = 128, C: int = 64, chip: str = "h100") -> tuple[str, str]:
    """What a token of one head costs in chunks, at which wall, and against FlashAttention."""
    T, K, C = sizes(T=T, width=width, C=C)
    picture = costs_svg(T, K, C, chip)
    at, one = CHIPS[chip], work("chunked", T, K, K, C)
    times = token_seconds(T, K, C, chip)
    flash, ours = times["FlashAttention"], times["chunks, two kernels"]
    sums = on_chip(K, K, C).sums
    fits = "fit" if sums <= REGISTERS else "do not fit"
    ratio = f"{amount(flash / ours, 3)} times the chunks'"
    summary = (
        f"In two kernels a token does {quantity(one.flops / T, 'FLOP')} and moves "
        f"{quantity(one.bytes / T, 'B')}, {amount(one.intensity, 3)} FLOPs per byte: bound by "
        f"{wall(one, at, 'bf16')}, for the ridge is at {amount(ridge(at, 'bf16'), 3)}. "
        f"FlashAttention's least time is {ratio}; they meet at "
        f"{break_even(K, K, at, C=C):,.0f} tokens, with the delta rule at "
        f"{break_even(K, K, at, C=C, rule='delta'):,.0f}. The state takes "
        f"{binary(4 * K * K)}; the scores of {C} tokens and a tile of outputs take "
        f"{binary(sums)}, which {fits} in a multiprocessor's {binary(REGISTERS)} of registers."
    )
    return picture, summary
