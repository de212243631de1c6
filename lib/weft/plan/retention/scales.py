"""How far back a head with a constant decay reaches: half-lives, horizons, sums of decays."""

from math import exp, expm1, log

from weft.plan.arguments import amount, few, whole
from weft.plan.linear import DECAYS
from weft.plan.precision import known


def half_life(decay: float) -> float:
    """Tokens after which half of a write is left, log 2 / -log decay.

    >>> [round(half_life(decay)) for decay in DECAYS(4)]
    [22, 44, 88, 177]
    """
    return log(2) / -log(_below_one(decay))


def horizon(decay: float) -> float:
    """1 / (1 - decay): what 1 + decay + decay^2 + ... adds up to, in tokens.

    It is the number of tokens that a head could sum up without fading and have as much. Of a
    write 1 / e is left after about so many tokens.

    >>> [horizon(decay) for decay in DECAYS(4)]
    [32.0, 64.0, 128.0, 256.0]
    """
    return 1 / (1 - _below_one(decay))


def decay_sum(decay: float, tokens: int) -> float:
    """1 + decay + ... over so many tokens; where nothing fades, their number.

    >>> decay_sum(0.5, 3), decay_sum(1.0, 3)
    (1.75, 3.0)
    """
    tokens = whole("tokens", tokens, least=0)
    if amount("decay", decay, above=True) > 1:
        raise ValueError(f"decay is {decay}, must be at most 1")
    return float(tokens) if decay == 1 else expm1(tokens * log(decay)) / (decay - 1)


def spread(H: int, shortest: float = 32, longest: float = 512) -> list[float]:
    """Decays whose horizons lie evenly between two on a logarithmic scale, ends included.

    With these two the decays of RetNet's experiments. Sun et al. 2023, section 3.1.

    >>> [round(horizon(decay)) for decay in spread(5)]
    [32, 64, 128, 256, 512]
    """
    few(whole("H", H), "heads", H=H)
    for name, tokens in (("shortest", shortest), ("longest", longest)):
        if amount(name, tokens, above=True) <= 1:
            raise ValueError(f"{name} is {tokens}, must be above 1: a decay lies above 0")
    steps = [i / max(H - 1, 1) for i in range(H)]
    return [1 - exp(-log(shortest) * (1 - x) - log(longest) * x) for x in steps]


def lightning(H: int, layer: int = 0, layers: int = 1) -> list[float]:
    """Decays of Lightning Attention as MiniMax and Ling are served: ALiBi's slopes, by depth.

    Head h of H, a power of two, has -log decay 2^(-8 (h + 1) / H) in the first layer; it falls in
    a line over `layers`, all of the model's, to a hundred-thousandth of that in the last. In
    MiniMax-01 the last of 80 is full attention, so the slowest Lightning layer is the one before.
    SGLang, lightning_backend.py; Press et al. 2022.

    >>> [round(half_life(decay)) for decay in lightning(64, 78, 80)[::63]]
    [60, 14007]

    >>> [round(half_life(decay), 1) for decay in lightning(8)[::7]]
    [1.4, 177.4]
    """
    few(whole("H", H), "heads", H=H)
    if H & (H - 1):
        raise ValueError(f"H is {H}, must be a power of two")
    layers = whole("layers", layers)
    layer = whole("layer", layer, least=0, most=layers - 1)
    depth = 1 - layer / max(layers - 1, 1) + 1e-5
    return [exp(-(2 ** (-8 * (h + 1) / H)) * depth) for h in range(H)]


def fading(H: int, format: str) -> int:
    """How many of H heads with RetNet's decays still forget when these are rounded to a format.

    1 - 2^(-5 - i) gets so near 1 that it becomes 1, and the head sums up all tokens alike.

    >>> [fading(40, format) for format in ("bf16", "fp16", "fp32")]
    [4, 7, 20]
    """
    return sum(known(format).round(decay) < 1 for decay in DECAYS(H))


def _below_one(decay: float) -> float:
    if amount("decay", decay, above=True) >= 1:
        raise ValueError(f"decay is {decay}, must be below 1: nothing fades at 1")
    return decay
