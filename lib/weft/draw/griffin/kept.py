"""What a sequence keeps in RecurrentGemma 2B, beside a Transformer's cache, over its length."""

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.griffin import cache_bytes, recurrentgemma
from weft.plan.griffin.keeps import LAYERS, SIZES
from weft.plan.units import binary, length

LENGTHS = tuple(1 << i for i in range(6, 19, 2))


def windows_svg() -> str:
    """Bytes over the length: a cache in all layers, windows in a third of them, states alone."""
    layers, heads = sum(LAYERS.values()), {name: SIZES[name] for name in ("G", "K")}
    sizes = {
        f"cache in all {layers} layers": lambda T: cache_bytes(T, layers, **heads),
        f"Griffin: {LAYERS['attention']} windows, {LAYERS['recurrent']} states": lambda T: (
            recurrentgemma(T).total
        ),
        "its states and convolutions": lambda T: recurrentgemma(T).total - recurrentgemma(T).window,
    }
    looks = {name: line(i, 2.5 if i == 1 else 2) for i, name in enumerate(sizes)}
    ends = [size(T) for size in sizes.values() for T in (LENGTHS[0], LENGTHS[-1])]
    told = "; ".join(
        f"{name} from {binary(size(LENGTHS[0]))} to {binary(size(LENGTHS[-1]))}"
        for name, size in sizes.items()
    )
    chart = Chart(
        "What one sequence keeps: RecurrentGemma 2B",
        f"Bytes over tokens from {length(LENGTHS[0])} to {length(LENGTHS[-1])}, both logarithmic. "
        f"Griffin's rise until the window of {length(SIZES['window'])} is full: {told}.",
        Axis("tokens", LENGTHS[0], LENGTHS[-1], length, log=True, ticks=LENGTHS),
        Axis("kept by one sequence", min(ends) / 2, 2 * max(ends), binary, log=True,
             ticks=[2.0**i for i in range(20, 35, 4)]),
        [Key(name, look) for name, look in looks.items()],
    )  # fmt: skip
    for name, size in sizes.items():
        chart.curve([(round(T), size(round(T))) for T in chart.spots(48)], looks[name])
        for T in LENGTHS:
            tip = f"{name}, {length(T)} tokens: {binary(size(T))}"
            chart.point(T, size(T), tip, r=2.5)
    return str(chart.figure)
