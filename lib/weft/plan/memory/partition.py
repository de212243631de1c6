"""Which parameters lie on one device of a model that is cut into tensor and pipeline shares."""

from collections.abc import Sequence

from weft.plan.arguments import instance, sizes
from weft.plan.shape import ModelShape

BY_INPUTS = "out", "down"  # cut by their inputs; the others by their outputs
WHOLE = "q down", "kv down", "router", "shared gate"  # not cut


def parameters(shape: ModelShape, t: int = 1, p: int = 1) -> int:
    """Parameters on the fullest device: the first stage's, or the last one's.

    A layer's matrices are cut in t, two by their outputs and two by their inputs,
    and those of each expert likewise; routers, and what makes latent attention narrow,
    lie whole on each.
    The biases of the former are cut with them; those of the latter and the norms
    lie on all t devices. The vocabulary is cut in t; positions are not. With more
    than one stage a tied embedding lies on the first and on the last, and the first
    stages have a layer more where p does not divide the layers. Where layers differ, the
    fullest stage is taken to have the largest.
    Shoeybi et al. 2019, section 3; Narayanan et al. 2021, section 2.

    >>> from weft.plan.shape import SHAPES
    >>> shape = SHAPES["gpt3-175b"]
    >>> parameters(shape) == shape.params
    True
    >>> f"{parameters(shape, t=8, p=8) / 1e9:.2f}"
    '2.82'
    """
    t, p = divided(shape, t, p)
    layers = [(kind.layers, of_layers(kind, t)) for kind in shape.kinds]
    table = -(-shape.vocab // t) * shape.table
    copies = 1 if shape.tied else 2
    others = shape.params - sum(kind.layers * kind.layer_params for kind in shape.kinds)
    others -= copies * shape.vocab * shape.table  # positions and the last norms
    if p == 1:
        return sum(count * layer for count, layer in layers) + copies * table + others
    positions = shape.seq if shape.positions is None else shape.positions
    between = 2 * shape.embedding * shape.width if shape.embedding else 0
    norms = others - positions * shape.width - between
    final = norms // shape.norms if shape.norms else 0
    first = heaviest(layers, -(-shape.layers // p)) + table + others - final
    last = heaviest(layers, shape.layers // p) + table + final + between
    return max(first, last)


def heaviest(layers: Sequence[tuple[int, int]], count: int) -> int:
    """The most that so many layers come to, of pairs of how many there are and what one has.

    >>> heaviest([(2, 10), (3, 50)], count=4)
    160
    """
    total = 0
    for there, each in sorted(layers, key=lambda pair: -pair[1]):
        total += min(there, count) * each
        count -= min(there, count)
    return total


def divided(shape: ModelShape, t: int, p: int, v: int = 1) -> tuple[int, int]:
    """t and p as whole numbers, by which heads, the hidden layer and the layers can be cut."""
    instance(ModelShape, shape=shape)
    t, p, v = sizes(t=t, p=p, v=v)
    cut = {"heads": shape.heads, "hidden": shape.ffn}
    if shape.experts:
        cut |= {"experts.hidden": shape.experts.hidden, "experts.shared": shape.experts.shared}
        if len(shape.kinds) == 1:
            del cut["hidden"]  # no layer has that MLP
    for name, size in cut.items():
        if size % t:
            raise ValueError(f"t is {t}, must divide {name} = {size}")
    if shape.groups % t and t % shape.groups:
        raise ValueError(f"t is {t}, must divide kv_heads = {shape.groups} or be a multiple of it")
    if p * v > shape.layers:
        stages = f"p is {p} and v is {v}: p * v = {p * v}" if v > 1 else f"p is {p}"
        raise ValueError(f"{stages}, must be at most the {shape.layers} layers")
    return t, p


def kv_width(shape: ModelShape, t: int) -> int:
    """The width of the keys on one of t devices: each has a head, even where there are fewer.

    >>> from weft.plan.shape import SHAPES
    >>> [kv_width(SHAPES["llama2-70b"], t) for t in (1, 4, 16)]
    [1024, 256, 128]
    """
    instance(ModelShape, shape=shape)
    (t,) = sizes(t=t)
    return max(1, shape.groups // t) * shape.key_width


def of_layers(shape: ModelShape, t: int) -> int:
    """Parameters of one layer on one of t devices, where layers are alike."""
    experts = shape.experts.count if shape.experts else 0
    elsewhere = sum(_cut(shape, t, name, size) for name, size in shape.matrices.items())
    elsewhere += experts * sum(
        _cut(shape, t, name, size, "experts") for name, size in shape.expert_matrices.items()
    )
    if shape.sinks:
        elsewhere += shape.heads - shape.heads // t
    return shape.layer_params - elsewhere


def _cut(shape: ModelShape, t: int, name: str, size: tuple[int, int], of: str = "") -> int:
    """Parameters of a matrix and its bias that one of t devices does not hold."""
    rows, columns = size
    if name in WHOLE:
        return 0
    if name in BY_INPUTS:
        return (rows - rows // t) * columns
    here = columns // t
    if name == "qkv":
        here = shape.heads // t * shape.key_width + 2 * kv_width(shape, t)
    return (rows + shape.has_bias(of or name)) * (columns - here)
