"""Which collectives a layer needs on t ranks, in which order, and the bytes that a rank sends.

A half of a layer is two cuts: the first matrix by its outputs, the second by its inputs. What lies
between needs nobody else; what comes out is a sum over ranks, and in backward, so is the gradient
of what goes in. With sequence parallelism each rank has T / t tokens outside of the halves: they
are gathered before the first matrix, and the sum behind the second is scattered.
"""

from collections.abc import Sequence
from typing import NamedTuple

from weft.plan.arguments import chosen, few, instance, sizes, whole
from weft.plan.collectives import volume
from weft.plan.shape import RECOMPUTE, ModelShape

HALVES = "attention", "mlp"


class LayerCall(NamedTuple):
    """A collective: in which pass, which, and around which half of the layer."""

    passing: str
    op: str
    half: str


def calls(
    t: int, sequence_parallel: bool = False, recompute: str = "none", regather: bool = False
) -> list[LayerCall]:
    """The collectives of one layer, in order; none at t = 1.

    An all-reduce is a reduce-scatter and an all-gather, so sequence parallelism sends as many
    bytes. Backward has every forward collective's opposite, the last first. "full" recomputing
    runs forward again, with its collectives, before; "selective" recomputes what none is in.
    With `regather` a rank keeps its own tokens of the first matrix's input and gathers them once
    more in backward, for the weight's gradient: so does Megatron. Korthikanti et al. 2022.

    >>> for call in calls(2): print(*call)
    forward all_reduce attention
    forward all_reduce mlp
    backward all_reduce mlp
    backward all_reduce attention
    """
    return [step.call for step in steps(t, sequence_parallel, recompute, regather)]


class CallStep(NamedTuple):
    """A collective, and which matmul of its half makes or takes its data, "first" or "second".

    `apart` says that a further one of that size has to do with neither, and can go on meanwhile.
    """

    call: LayerCall
    matmul: str
    apart: bool = False


def steps(t: int, sequence_parallel: bool, recompute: str, regather: bool) -> list[CallStep]:
    """`calls`, each with the matmuls around it; in backward these are the gradient's."""
    t = whole("t", t)
    chosen("recompute", recompute, RECOMPUTE)
    if regather and not sequence_parallel:
        raise ValueError("regather is True, must be False without sequence_parallel")
    if t == 1:
        return []
    into, out_of = [("all_gather", "first")], [("reduce_scatter", "second")]
    gradients = [("all_gather", "second"), ("reduce_scatter", "first", True)]
    if regather:
        gradients.insert(1, ("all_gather", "first", True))
    if not sequence_parallel:
        into, out_of, gradients = [], [("all_reduce", "second")], [("all_reduce", "first", True)]

    def made(passing: str, halves: Sequence[str], some: list[tuple]) -> list[CallStep]:
        return [
            CallStep(LayerCall(passing, op, half), *rest) for half in halves for op, *rest in some
        ]

    again = made("backward", HALVES, into + out_of) if recompute == "full" else []
    forward = made("forward", HALVES, into + out_of)
    return forward + again + made("backward", HALVES[::-1], gradients)


def sent(
    shape: ModelShape,
    microbatch: int,
    t: int,
    sequence_parallel: bool = False,
    recompute: str = "none",
    size: int = 2,
    regather: bool = False,
) -> float:
    """Bytes that one of t ranks sends for one layer and microbatch, in both passes, by rings.

    Each of `calls` is of all tokens' activations, [B, T, D] of `size` bytes: an all-reduce sends
    2 (t - 1) / t of them, the other two half of that.

    >>> from weft.plan.shape import SHAPES
    >>> sent(SHAPES["gpt3-175b"], microbatch=1, t=8) / 2**20
    336.0
    """
    instance(ModelShape, shape=shape)
    t, microbatch, size = sizes(t=t, microbatch=microbatch, size=size)
    checked_time(shape.seq, t, sequence_parallel)
    nbytes = microbatch * shape.seq * shape.width * size
    return sum(
        volume(call.op, nbytes, t) for call in calls(t, sequence_parallel, recompute, regather)
    )


def sent_ends(shape: ModelShape, microbatch: int, t: int, size: int = 2, wide: int = 4) -> float:
    """Bytes that one of t ranks sends for the embedding, the scores and their loss, both passes.

    The rows that ranks find of a vocabulary in t parts are summed, and in backward the gradients of
    what the scores are made from; under sequence parallelism both in halves, of as many bytes. The
    loss takes three numbers of `wide` bytes for each token, where gathered scores were N of them.

    >>> from weft.plan.shape import SHAPES
    >>> sent_ends(SHAPES["gpt3-175b"], microbatch=1, t=8) / 2**20
    168.041015625
    """
    instance(ModelShape, shape=shape)
    t, microbatch, size, wide = sizes(t=t, microbatch=microbatch, size=size, wide=wide)
    tokens = microbatch * shape.seq
    return 2 * volume("all_reduce", tokens * shape.width * size, t) + volume(
        "all_reduce", 3 * tokens * wide, t
    )


def sent_norms(shape: ModelShape, t: int, size: int = 2) -> float:
    """Bytes that one of t ranks sends in a backward for a layer's norms, if parallel in sequence.

    All ranks have a norm's vectors and put other tokens through it, so that its gradients are sums.

    >>> from weft.plan.shape import SHAPES
    >>> sent_norms(SHAPES["gpt3-175b"], t=8)
    172032
    """
    instance(ModelShape, shape=shape)
    t, size = sizes(t=t, size=size)
    vectors = shape.norm_vectors if shape.norm_vectors is not None else 1 + shape.bias
    return volume("all_reduce", shape.layer_norms * vectors * shape.width * size, t)


def checked_time(T: int, t: int, sequence_parallel: bool) -> None:
    """ValueError where sequence parallelism cannot deal T tokens to t ranks."""
    if sequence_parallel and T % t:
        raise ValueError(f"t is {t}, must divide seq = {T} with sequence_parallel")


def shares(count: int, t: int) -> list[int]:
    """How many of `count` columns, heads or words each of t ranks has, as torch.tensor_split cuts.

    >>> shares(10, t=4)
    [3, 3, 2, 2]
    """
    count, t = sizes(count=count, t=t)
    few(t, "shares", t=t)
    return [count // t + (rank < count % t) for rank in range(t)]
