"""What the layers keep for backward on one of t ranks: plan.memory's, and what is gathered."""

from weft.plan.memory import activations
from weft.plan.shape import ModelShape
from weft.plan.tensor.traffic import calls


def kept(
    shape: ModelShape,
    microbatch: int,
    t: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    attention: str = "naive",
    regather: bool = False,
) -> int:
    """Bytes of activations that all layers keep of a microbatch, on one of t devices.

    With `regather` it is weft.plan.memory.activations, Korthikanti's figures. Without, backward
    sends less, and sequence parallelism keeps what was gathered, the first matrices' inputs, of
    all tokens rather than of T / t.

    >>> from weft.plan.shape import SHAPES
    >>> shape = SHAPES["gpt-22b"]
    >>> [f"{kept(shape, 4, 8, *how) / 2**30:.1f}" for how in ((), (True,))]
    ['59.2', '47.4']
    >>> f"{kept(shape, 4, 8, True, regather=True) / 2**30:.1f}"
    '39.6'
    """
    how = {"sequence_parallel": sequence_parallel, "recompute": recompute, "attention": attention}
    cut = activations(shape, microbatch, t, **how)
    calls(t, sequence_parallel, recompute, regather)  # refuses what does not go together
    if regather or not sequence_parallel or recompute == "full":
        return cut
    inputs = 1 if shape.layer_norms == 1 else 2  # as plan.memory counts them
    tokens = microbatch * shape.seq
    return cut + shape.layers * inputs * 2 * (tokens - tokens // t) * shape.width
