"""The gates of the RG-LRU: how much they forget, how steep they are, and how ranks share them."""

import math

from weft.plan.arguments import amount, number, positive, sizes

C = 8.0  # "c" of De et al. 2024: a = exp(-C r softplus(p))


def kept(gate: float, a_param: float) -> float:
    """a, what is left of the state after one token, at a recurrence gate in [0, 1].

    >>> round(kept(1.0, -4.0), 3), kept(0.0, -4.0)
    (0.865, 1.0)
    """
    gate = _gate(gate)
    return math.exp(-C * gate * _softplus(number("a_param", a_param)))


def half_life(gate: float, a_param: float) -> float:
    """Tokens after which half of what was written is left, infinite at a gate of 0.

    >>> round(half_life(1.0, -4.0), 1), half_life(0.0, -4.0)
    (4.8, inf)
    """
    rate = C * _gate(gate) * _softplus(number("a_param", a_param))
    return math.log(2) / rate if rate else math.inf


def slope(a: float, most: float | None = None) -> float:
    """d sqrt(1 - a^2) / d log a = -a^2 / sqrt(1 - a^2); the root's own slope is at most `most`.

    Without `most` it has no bound as a nears 1, where the gate is shut and nothing is forgotten.

    >>> round(slope(0.6), 2), round(slope(0.9999999)), round(slope(0.9999999999, most=1000))
    (-0.45, -2236, -2000)
    """
    a = amount("a", a)
    if a > 1:
        raise ValueError(f"a is {a}, must be at most 1")
    inside = -math.expm1(2 * math.log(a)) if a else 1.0
    root = 1 / (2 * math.sqrt(inside)) if inside else math.inf
    if most is not None:
        root = min(root, *positive(most=most))
    return -2 * a * a * root


def gate_parameters(width: int, blocks: int) -> int:
    """Weights and biases of both gates: block-diagonal, blocks of width / blocks squared.

    >>> gate_parameters(2560, 10) / gate_parameters(2560, 1) < 0.11
    True
    """
    width, blocks = _divided(width, blocks)
    return 2 * (width * width // blocks + width)


def blocks_of_rank(blocks: int, t: int) -> list[int]:
    """How many blocks each of t tensor-parallel ranks has; no rank then needs another's channels.

    >>> blocks_of_rank(10, 4)
    [3, 3, 2, 2]
    """
    blocks, t = sizes(blocks=blocks, t=t)
    if t > blocks:
        raise ValueError(f"t is {t}, must be at most blocks = {blocks}")
    return [blocks // t + (rank < blocks % t) for rank in range(t)]


def _gate(gate: float) -> float:
    gate = amount("gate", gate)
    if gate > 1:
        raise ValueError(f"gate is {gate}, must lie between 0 and 1")
    return gate


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _divided(width: int, blocks: int) -> tuple[int, int]:
    width, blocks = sizes(width=width, blocks=blocks)
    if width % blocks:
        raise ValueError(f"width is {width}, must be a multiple of blocks = {blocks}")
    return width, blocks
