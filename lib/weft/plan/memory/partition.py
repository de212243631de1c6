"""Which parameters lie on one device of a model that is cut into tensor and pipeline shares."""

from weft.plan.arguments import sizes
from weft.plan.shape import ModelShape


def parameters(shape: ModelShape, t: int = 1, p: int = 1) -> int:
    """Parameters on the fullest device: the first stage's, or the last one's.

    A layer's matrices are cut in t, two by their outputs and two by their inputs.
    The biases of the former are cut with them; those of the latter and the norms
    lie on all t devices. The vocabulary is cut in t; positions are not. With more
    than one stage a tied embedding lies on the first and on the last, and the first
    stages have a layer more where p does not divide the layers.
    Shoeybi et al. 2019, section 3; Narayanan et al. 2021, section 2.

    >>> from weft.plan.shape import SHAPES
    >>> shape = SHAPES["gpt3-175b"]
    >>> parameters(shape) == shape.params
    True
    >>> f"{parameters(shape, t=8, p=8) / 1e9:.2f}"
    '2.82'
    """
    t, p = divided(shape, t, p)
    layer = shape.layer_params - _elsewhere(shape, t)
    table = -(-shape.vocab // t) * shape.width
    copies = 1 if shape.tied else 2
    others = shape.params - shape.layers * shape.layer_params
    others -= copies * shape.vocab * shape.width  # positions and the last norms
    if p == 1:
        return shape.layers * layer + copies * table + others
    positions = shape.seq if shape.positions is None else shape.positions
    norms = others - positions * shape.width
    final = norms // shape.norms if shape.norms else 0
    first = -(-shape.layers // p) * layer + table + others - final
    last = shape.layers // p * layer + table + final
    return max(first, last)


def divided(shape: ModelShape, t: int, p: int, v: int = 1) -> tuple[int, int]:
    """t and p as whole numbers, by which heads, the hidden layer and the layers can be cut."""
    t, p, v = sizes(t=t, p=p, v=v)
    for name, size in (("heads", shape.heads), ("hidden", shape.ffn)):
        if size % t:
            raise ValueError(f"t is {t}, must divide {name} = {size}")
    if shape.groups % t and t % shape.groups:
        raise ValueError(f"t is {t}, must divide kv_heads = {shape.groups} or be a multiple of it")
    if p * v > shape.layers:
        stages = f"p * v = {p * v}" if v > 1 else f"p is {p}"
        raise ValueError(f"{stages}, must be at most the {shape.layers} layers")
    return t, p


def kv_width(shape: ModelShape, t: int) -> int:
    """The width of the keys on one of t devices: each has a head, even where there are fewer."""
    return max(1, shape.groups // t) * shape.key_width


def _elsewhere(shape: ModelShape, t: int) -> int:
    """Parameters of a layer that one of t devices does not hold."""
    whole = shape.matrices
    here = {name: (rows, columns // t) for name, (rows, columns) in whole.items()}
    here["qkv"] = shape.width, shape.width // t + 2 * kv_width(shape, t)
    for name in ("out", "down"):
        rows, columns = whole[name]
        here[name] = rows // t, columns
    biases = sum(whole[name][1] - here[name][1] for name in whole) if shape.bias else 0
    return biases + sum(r * c - here[name][0] * here[name][1] for name, (r, c) in whole.items())
