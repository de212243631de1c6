"""The least time of a token over the length: chunks stay level, FlashAttention rises."""

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan import roofline
from weft.plan.arguments import chosen, sizes, whole
from weft.plan.hardware import CHIPS
from weft.plan.linear import break_even, work
from weft.plan.units import length, quantity

LENGTHS = tuple(1 << i for i in range(9, 18))
CHIPS_SHOWN = ("a100-80", "h100", "h200", "b200")
SIZE = 2  # half precision
LOOKS = {
    "FlashAttention": line(0, 2.5), "chunks, two kernels": line(1),
    "delta rule, three kernels": line(2), "chunks, one kernel": line(3, 1.25),
    "delta rule, one kernel": line(4, 1.25),
}  # fmt: skip


def token_seconds(T: int, K: int, C: int, chip: str) -> dict[str, float]:
    """Least seconds of a token of one head, K = V, causal, by name as LOOKS has them."""
    T, K, C = sizes(T=T, K=K, C=C)
    at = CHIPS[chosen("chip", chip, CHIPS_SHOWN)]
    works = {
        "FlashAttention": roofline.attention(T, T, 1, K, SIZE, "flash", causal=True),
        "chunks, two kernels": work("chunked", T, K, K, C, SIZE),
        "delta rule, three kernels": work("chunked", T, K, K, C, SIZE, "delta"),
        "chunks, one kernel": work("chunked", T, K, K, C, SIZE, kernels=1),
        "delta rule, one kernel": work("chunked", T, K, K, C, SIZE, "delta", kernels=1),
    }
    return {name: roofline.seconds(one, at, "bf16") / T for name, one in works.items()}


def costs_svg(T: int = 8192, K: int = 128, C: int = 64, chip: str = "h100") -> str:
    """Least time of a token and head over the length, on one chip; the chosen length ringed.

    Where the line of a form crosses FlashAttention's, both take as long at their roofs.
    """
    T = whole("T", T)
    if T not in LENGTHS:
        raise ValueError(f"T is {T}, must be one of {', '.join(map(str, LENGTHS))}")
    curves = {T: token_seconds(T, K, C, chip) for T in LENGTHS}
    everything = [value for one in curves.values() for value in one.values()]
    chart = Chart(
        f"Least time of a token: heads of {K}, chunks of {C}, {chip}",
        _describe(T, K, C, chip, curves),
        Axis("tokens", LENGTHS[0], LENGTHS[-1], length, log=True, ticks=LENGTHS),
        Axis("least time of a token and head", min(everything) / 2, 2 * max(everything),
             _seconds, log=True),
        [Key(name, look) for name, look in LOOKS.items()],
    )  # fmt: skip
    for name, look in LOOKS.items():
        points = (
            [(at, token_seconds(round(at), K, C, chip)[name]) for at in chart.spots(48)]
            if (name == "FlashAttention")
            else [(at, curves[at][name]) for at in LENGTHS]
        )
        chart.curve(points, look)
        chart.point(T, curves[T][name], f"{name}, {length(T)} tokens: {_seconds(curves[T][name])}")
    chart.ring(T, curves[T]["chunks, two kernels"])
    return str(chart.figure)


def _seconds(value: float) -> str:
    return quantity(value, "s")


def _describe(T, K, C, chip, curves) -> str:
    at = CHIPS[chip]
    plain, delta = (break_even(K, K, at, C=C, rule=rule) for rule in ("plain", "delta"))
    here = ", ".join(f"{name} {_seconds(value)}" for name, value in curves[T].items())
    return (
        f"Both axes logarithmic, from {length(LENGTHS[0])} to {length(LENGTHS[-1])} tokens on "
        f"{chip}. FlashAttention is level and then rises with the length; the others stay level. "
        f"It crosses chunks in two kernels at {plain:,.0f} tokens and the delta rule at "
        f"{delta:,.0f}. At {length(T)} tokens: {here}."
    )
