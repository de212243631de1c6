"""What one sequence keeps while it is decoded: a cache, states, and layers of both."""

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.arguments import sizes, whole
from weft.plan.linear import state_bytes
from weft.plan.units import binary, length

LENGTHS = tuple(1 << i for i in range(6, 19, 2))
CACHE = 2  # bytes of an element of the cache


def kept_svg(
    layers: int = 48, every: int = 4, H: int = 32, G: int = 2, K: int = 128, cached: int = 256
) -> str:
    """Bytes of one sequence over its length: attention in all layers, in every so many-th, in none.

    A layer of attention keeps G keys and values of `cached` elements a token in 16 bits, one of
    states H matrices of K x K in fp32.
    """
    layers, every, H, G, K, cached = sizes(layers=layers, every=every, H=H, G=G, K=K, cached=cached)
    whole("every", every, most=layers)
    full = layers // every
    mixes = {
        "attention in all layers": (layers, line(0)),
        f"in every {every}th": (full, line(1, 2.5)),
        "states alone": (0, line(2)),
    }

    def kept(attention: int, T: float) -> float:
        states = state_bytes(H, K, K, layers - attention) if attention < layers else 0
        return states + attention * 2 * G * cached * CACHE * T

    ends = [kept(a, T) for a, _ in mixes.values() for T in (LENGTHS[0], LENGTHS[-1])]
    told = "; ".join(
        f"{name} from {binary(kept(a, LENGTHS[0]))} to {binary(kept(a, LENGTHS[-1]))}"
        for name, (a, _) in mixes.items()
    )
    chart = Chart(
        f"What one sequence keeps: {layers} layers",
        f"Bytes over tokens from {length(LENGTHS[0])} to {length(LENGTHS[-1])}, both logarithmic: "
        f"{told}.",
        Axis("tokens", LENGTHS[0], LENGTHS[-1], length, log=True, ticks=LENGTHS),
        Axis("kept by one sequence", min(ends) / 2, 2 * max(ends), binary, log=True,
             ticks=[2.0**i for i in range(20, 41, 4) if min(ends) / 2 <= 2.0**i <= 2 * max(ends)]),
        [Key(name, look) for name, (_, look) in mixes.items()],
    )  # fmt: skip
    for name, (attention, look) in mixes.items():
        chart.curve([(T, kept(attention, T)) for T in chart.spots(48)], look)
        for T in LENGTHS:
            amount = kept(attention, T)
            chart.point(T, amount, f"{name}, {length(T)} tokens: {binary(amount)}", r=2.5)
    return str(chart.figure)
