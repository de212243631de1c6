"""What passes between the layers and has to be kept for the backward, in bytes."""

from weft.plan.arguments import sizes, whole
from weft.plan.memory.partition import divided, kv_width
from weft.plan.shape import RECOMPUTE, ModelShape


def activations(
    shape: ModelShape,
    microbatch: int,
    t: int = 1,
    p: int = 1,
    m: int = 1,
    v: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
) -> int:
    """Bytes of activations on the fullest device, which is the first stage's.

    It runs ahead of its first backward by p microbatches, with its share of the
    layers for each, so that p cancels out: it keeps as much as one device would for
    all layers. Interleaved, with v stages on each device, it is (p - 1) / (p v) more.
    Where there are fewer of them than that, it keeps the activations of all `m`
    microbatches. Layers alone count, without embeddings and logits, in numbers of
    two bytes and masks of one.

    Where p v does not divide the layers, every stage is taken to be as large as the
    largest. Korthikanti et al. 2022, sections 4 and 5.

    >>> from weft.plan.shape import SHAPES
    >>> activations(SHAPES["gpt-22b"], microbatch=4, t=8) / 2**30
    59.25
    >>> activations(SHAPES["gpt3-175b"], 1, t=8, p=8, m=64, v=3) / 2**30
    66.84375
    """
    m, v = sizes(m=m, v=v)
    t, p = divided(shape, t, p, v)
    kept = of_layer(shape, microbatch, t, sequence_parallel, recompute)
    most = p if v == 1 else p * v + p - 1
    return min(m * v, most) * -(-shape.layers // (p * v)) * kept


def of_layer(
    shape: ModelShape,
    microbatch: int,
    t: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
) -> int:
    """Bytes that one layer keeps of one microbatch, on one of t devices.

    Tensor parallelism cuts what lies between the matrices; the inputs of norms and
    of the first matrices, and the masks of dropout, are on all t devices, unless
    sequence parallelism cuts those too. "selective" keeps no T x T matrix, "full"
    nothing but the layer's input. For GPT, T B D (10 + 24 / t + 5 H T / (D t)).

    Fewer kv heads and a gated MLP change the sum as they change the tensors. Masks
    and dropped-out scores are counted in a model without dropout too: it keeps
    2 B T D + 3 B H T^2 / t bytes less. Korthikanti et al. 2022, equations 1 to 6.

    >>> from weft.plan.shape import SHAPES
    >>> shape = SHAPES["gpt3-175b"]
    >>> of_layer(shape, 1) / (shape.seq * shape.width)
    114.0
    """
    microbatch = whole("microbatch", microbatch)
    t, _ = divided(shape, t, p=1)
    if recompute not in RECOMPUTE:
        allowed = ", ".join(RECOMPUTE)
        raise ValueError(f"recompute is {recompute!r}, must be one of {allowed}")
    if sequence_parallel and shape.seq % t:
        rule = f"must divide seq = {shape.seq} with sequence_parallel"
        raise ValueError(f"t is {t}, {rule}")
    D, tokens = shape.width, microbatch * shape.seq
    along = tokens // t if sequence_parallel else tokens
    if recompute == "full":
        return 2 * along * D
    around = 2 * 2 * D + 2 * 2 * D + 2 * D  # norms, qkv and up: inputs; two masks
    attention = 2 * (D // t + 2 * kv_width(shape, t) + D // t)  # q, k, v; to out
    mlp = 2 * (shape.matrices["up"][1] // t + shape.ffn // t)  # before, after GELU
    scores = 5 * shape.heads // t * shape.seq  # softmax, mask, dropped: 2, 1, 2
    if recompute == "selective":
        scores = 0
    return along * around + tokens * (attention + mlp + scores)
