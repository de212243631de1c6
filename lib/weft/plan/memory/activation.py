"""What passes between the layers and has to be kept for the backward, in bytes."""

from weft.plan.arguments import chosen, sizes
from weft.plan.memory.partition import divided, heaviest, kv_width
from weft.plan.shape import RECOMPUTE, ModelShape

ATTENTIONS = "naive", "flash"  # whether the scores are kept


def activations(
    shape: ModelShape,
    microbatch: int,
    t: int = 1,
    p: int = 1,
    m: int = 1,
    v: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    attention: str = "naive",
    stored: int = 2,
) -> int:
    """Bytes of activations on the fullest device, which is the first stage's.

    It runs ahead of its first backward by p microbatches, with its share of the
    layers for each, so that p cancels out: it keeps as much as one device would for
    all layers. Interleaved, with v stages on each device, it is (p - 1) / (p v) more.
    Where there are fewer of them than that, it keeps the activations of all `m`
    microbatches. Layers alone count, without embeddings and logits, in numbers of
    two bytes and masks of one.

    Where p v does not divide the layers, every stage is taken to be as large as the
    largest, and to have the largest layers where they differ. `attention` and `stored` are
    of_layer's.
    Korthikanti et al. 2022, sections 4 and 5.

    >>> from weft.plan.shape import SHAPES
    >>> activations(SHAPES["gpt-22b"], microbatch=4, t=8) / 2**30
    59.25
    >>> activations(SHAPES["gpt3-175b"], 1, t=8, p=8, m=64, v=3) / 2**30
    66.84375
    """
    m, v = sizes(m=m, v=v)
    t, p = divided(shape, t, p, v)
    how = {"sequence_parallel": sequence_parallel, "recompute": recompute, "attention": attention}
    how["stored"] = stored
    kept = [(kind.layers, of_layer(kind, microbatch, t, **how)) for kind in shape.kinds]
    most = p if v == 1 else p * v + p - 1
    return min(m * v, most) * heaviest(kept, -(-shape.layers // (p * v)))


def of_layer(
    shape: ModelShape,
    microbatch: int,
    t: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    attention: str = "naive",
    stored: int = 2,
) -> int:
    """Bytes that one layer keeps of one microbatch, on one of t devices.

    Tensor parallelism cuts what lies between the matrices; the inputs of norms and
    of the first matrices, and the masks of dropout, are on all t devices, unless
    sequence parallelism cuts those too. "selective" keeps no T x T matrix, "full"
    nothing but the layer's input. For GPT, T B D (10 + 24 / t + 5 H T / (D t)).

    Fewer kv heads and a gated MLP change the sum as they change the tensors. Masks
    and dropped-out scores are counted in a model without dropout too: it keeps
    2 B T D + 3 B H T^2 / t bytes less. Korthikanti et al. 2022, equations 1 to 6.

    "flash" attention keeps one fp32 number for each row of scores instead of the row, windows
    or not (Dao et al. 2022, section 3.1). What norms of heads, further norms and latent attention
    take in is kept too. Of experts those count that a token is sent to, at even load: a copy of
    the token for each, what lies within it, and what comes out; and the router's scores. `stored`
    are the bytes of a number that a matmul of the layer takes in: 1 where it is cast to fp8.

    >>> from weft.plan.shape import SHAPES
    >>> shape = SHAPES["gpt3-175b"]
    >>> of_layer(shape, 1) / (shape.seq * shape.width)
    114.0
    """
    microbatch, stored = sizes(microbatch=microbatch, stored=stored)
    t, _ = divided(shape, t, p=1)
    chosen("recompute", recompute, RECOMPUTE)
    chosen("attention", attention, ATTENTIONS)
    if sequence_parallel and shape.seq % t:
        rule = f"must divide seq = {shape.seq} with sequence_parallel"
        raise ValueError(f"t is {t}, {rule}")
    D, tokens = shape.width, microbatch * shape.seq
    along = tokens // t if sequence_parallel else tokens
    if recompute == "full":
        return 2 * along * D
    inputs = 1 if shape.layer_norms == 1 else 2  # of qkv and up; one norm serves both at once
    around = (2 * shape.layer_norms + stored * inputs) * D + 2 * D  # norms' inputs, those; masks
    scores = 0 if recompute == "selective" else 5 * shape.heads // t * shape.seq
    if attention == "flash":
        scores = 4 * shape.heads // t
    narrow, attended = _attention(shape, t, stored)
    routed, hidden = _mlp(shape, t, stored)
    return along * (around + narrow + routed) + tokens * (attended + hidden + scores)


def _attention(shape: ModelShape, t: int, stored: int) -> tuple[int, int]:
    """Bytes of a token on all devices, and on one of t: what attention takes in and gives out."""
    H, K, V = shape.heads // t, shape.key_width, shape.value_width
    heads = 2 * (H * K + kv_width(shape, t)) if shape.head_norms else 0  # before their norms
    if not shape.latent:
        return 0, heads + 2 * (H * K + 2 * kv_width(shape, t)) + stored * H * K  # q, k, v; to out
    query = shape.latent.query or 0
    narrow = 2 * (2 * query + shape.latent.cached + shape.latent.key_value)  # and after norms
    return narrow, 2 * (2 * H * K + H * V) + stored * H * V


def _mlp(shape: ModelShape, t: int, stored: int) -> tuple[int, int]:
    """Bytes of a token on all devices, and on one of t: the hidden layers that it passes."""
    before = 2 if shape.gated else 1  # the activation's inputs; one comes out
    hidden = (2 * before + stored) * shape.passed // t
    if not shape.experts:
        return 0, hidden
    copies = 2 * 2 * shape.experts.active * shape.width  # into experts and out of them
    return copies + 4 * shape.experts.count, hidden
