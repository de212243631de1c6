"""What a decoding step moves over the length: a cache rises, states stay level."""

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.arguments import whole
from weft.plan.retention import RETNETS, ServedModel, of_cache, of_states
from weft.plan.units import length, quantity

LENGTHS = tuple(1 << i for i in range(9, 18))
HEADS, KV_HEADS = 32, (32, 8, 4, 1)  # of the Transformer beside it


def beside(model: str = "6.7b", kv: int = 32, state: int = 4) -> dict[str, ServedModel]:
    """What the two keep: a Transformer with so many kv heads of 32, and the RetNet.

    `state` is the bytes of a state's element; weights and cache are in 16 bits.
    """
    if model not in RETNETS:
        raise ValueError(f"model is {model!r}, must be one of {', '.join(RETNETS)}")
    if kv not in KV_HEADS:
        raise ValueError(f"kv is {kv!r}, must be one of {', '.join(map(str, KV_HEADS))}")
    one = RETNETS[model]
    return {"Transformer": of_cache(one, kv / HEADS), "RetNet": of_states(one, state)}


def served_svg(
    T: int = 8192, batch: int = 8, kv: int = 32, state: int = 4, model: str = "6.7b"
) -> str:
    """Bytes that one decoding step moves, over the tokens that each sequence has; T is ringed."""
    T, batch = whole("T", T), whole("batch", batch)
    if T not in LENGTHS:
        raise ValueError(f"T is {T}, must be one of {', '.join(map(str, LENGTHS))}")
    both = beside(model, kv, state)
    looks = {"Transformer": line(0), "RetNet": line(1, 2.5)}
    ends = [kept.moved(batch, n) for kept in both.values() for n in (LENGTHS[0], LENGTHS[-1])]
    told = "; ".join(
        f"the {name} from {_bytes(kept.moved(batch, LENGTHS[0]))} to "
        f"{_bytes(kept.moved(batch, LENGTHS[-1]))}, at {length(T)} tokens "
        f"{_bytes(kept.moved(batch, T))}"
        for name, kept in both.items()
    )
    chart = Chart(
        f"What a step moves: {model.upper()}, batch {batch}",
        f"Bytes over tokens from {length(LENGTHS[0])} to {length(LENGTHS[-1])}, both logarithmic: "
        f"{told}.",
        Axis("tokens of each sequence", LENGTHS[0], LENGTHS[-1], length, log=True, ticks=LENGTHS),
        Axis("moved by one step", min(ends) / 2, 2 * max(ends), _bytes, log=True),
        [Key(f"{name}, {kv} kv heads" if name == "Transformer" else name, look)
         for name, look in looks.items()],
    )  # fmt: skip
    for name, look in looks.items():
        kept = both[name]
        chart.curve([(n, kept.moved(batch, round(n))) for n in chart.spots(64)], look)
        here = kept.moved(batch, T)
        chart.point(T, here, f"{name}, {length(T)} tokens: {_bytes(here)}")
        chart.ring(T, here)
    return str(chart.figure)


def _bytes(value: float) -> str:
    return quantity(value, "B")
