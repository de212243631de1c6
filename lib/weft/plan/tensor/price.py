"""How long a layer takes on t ranks, what hides behind matmuls, and where the link is the wall.

Only matmuls are counted, at a share of the chip's rate, and collectives as rings. Norms and
activations, which are bound by memory, come on top; sequence parallelism makes them t times less.
"""

from typing import NamedTuple

from weft.plan.arguments import amount, chosen, instance, positive, sizes
from weft.plan.collectives import seconds
from weft.plan.hardware import Chip, Link
from weft.plan.shape import ModelShape
from weft.plan.tensor.traffic import calls, checked_time, steps

OVERLAPS = "none", "weights", "pieces"


class LayerTime(NamedTuple):
    """Seconds of one layer and microbatch: computing, sending, and from begin to end."""

    computing: float
    sending: float
    seconds: float

    @property
    def exposed(self) -> float:
        """Seconds in which a rank only waits for others."""
        return self.seconds - self.computing


def layer_time(
    shape: ModelShape,
    microbatch: int,
    t: int,
    chip: Chip,
    link: Link,
    sequence_parallel: bool = False,
    recompute: str = "none",
    overlap: str = "none",
    *,
    dtype: str = "bf16",
    size: int = 2,
    share: float = 1.0,
    regather: bool = False,
) -> LayerTime:
    """Forward and backward of a layer on one of t ranks, the one with most heads.

    `overlap` says what a rank computes while it sends:

    none     nothing.
    weights  in backward, the gradient of the first matrix's weight while that of its input is
             reduced; and with `regather`, the input's gradient while the input is gathered.
    pieces   that matmul which makes what is sent, or takes what comes, in t pieces, of which
             t - 1 are on the link while others are computed. It takes sequence parallelism: an
             all-reduce's second half has no matmul beside it.

    >>> from weft.plan.hardware import CHIPS, LINKS
    >>> from weft.plan.shape import SHAPES
    >>> how = SHAPES["llama2-70b"], 1, 8, CHIPS["h100"], LINKS["nvlink4"], True, "none"
    >>> [f"{1e3 * layer_time(*how, overlap).seconds:.2f} ms" for overlap in OVERLAPS]
    ['4.10 ms', '3.86 ms', '3.21 ms']
    """
    instance(ModelShape, shape=shape)
    instance(Chip, chip=chip)
    instance(Link, link=link)
    microbatch, t, size = sizes(microbatch=microbatch, t=t, size=size)
    chosen("overlap", overlap, OVERLAPS)
    if overlap == "pieces" and not sequence_parallel:
        raise ValueError("overlap is 'pieces', must be another without sequence_parallel")
    checked_time(shape.seq, t, sequence_parallel)
    rate = _rate(chip, dtype, share)
    tokens = microbatch * shape.seq
    calls(t, sequence_parallel, recompute, regather)  # refuses what does not go together
    matmuls, scores = _flops(shape, tokens, t)
    forward = (sum(matmuls.values()) + scores) / rate
    computing = 3 * forward + {"none": 0.0, "selective": scores / rate}.get(recompute, forward)
    nbytes = tokens * shape.width * size
    sending = hidden = 0.0
    for call, which, apart in steps(t, sequence_parallel, recompute, regather):
        taken = seconds(call.op, nbytes, t, link)
        sending += taken
        matmul = matmuls[call.half, which] / rate
        if overlap == "pieces":
            hidden += min(matmul * (t - 1) / t, taken)
        elif overlap == "weights" and apart:
            hidden += min(matmul, taken)
    return LayerTime(computing, sending, computing + sending - hidden)


def wall(
    width: int,
    chip: Chip,
    link: Link,
    flops: float | None = None,
    *,
    dtype: str = "bf16",
    size: int = 2,
    share: float = 1.0,
) -> float:
    """The t beyond which a layer's forward sends for longer than it computes.

    `flops` are those of a layer for one token, 24 D^2 if None: a dense MLP of four times the
    width, and no scores. They take flops / (t C), and 4 D `size` (t - 1) / t bytes are sent, so
    t = 1 + flops W / (4 D size C): 1 + 3 D W / C in 16 bits, however many tokens there are.
    Backward computes twice as much for the same bytes. C is `share` of the chip's rate, W the
    link's bandwidth; latencies, which few tokens feel, are left out.

    >>> from weft.plan.hardware import CHIPS, LINKS
    >>> [f"{wall(8192, CHIPS['h100'], LINKS[link]):.1f}" for link in ("nvlink4", "ib-ndr")]
    ['12.2', '2.2']
    """
    instance(Chip, chip=chip)
    instance(Link, link=link)
    width, size = sizes(width=width, size=size)
    flops = 24 * width**2 if flops is None else amount("flops", flops, above=True)
    return 1 + flops * link.bandwidth / (4 * width * size * _rate(chip, dtype, share))


def busy(
    width: int,
    t: int,
    chip: Chip,
    link: Link,
    *,
    dtype: str = "bf16",
    size: int = 2,
    share: float = 1.0,
) -> float:
    """The share of a layer's time in which t ranks compute, both passes, nothing overlapped.

    They compute 72 D^2 / t FLOPs for a token and send 8 D `size` (t - 1) / t bytes, so it is
    1 / (1 + (t - 1) / w) with w = 9 D W / (size C), whatever the tokens; latencies are left out.
    With it falls what t GPUs do for each of them.

    >>> from weft.plan.hardware import CHIPS, LINKS
    >>> [f"{busy(8192, t, CHIPS['h100'], LINKS['nvlink4'], share=0.6):.0%}" for t in (2, 8, 64)]
    ['97%', '80%', '31%']
    """
    (t,) = sizes(t=t)
    passes = 3 / 2 * (wall(width, chip, link, dtype=dtype, size=size, share=share) - 1)
    return 1 / (1 + (t - 1) / passes)


def _rate(chip: Chip, dtype: str, share: float) -> float:
    (share,) = positive(share=share)
    if share > 1:
        raise ValueError(f"share is {share}, must be at most 1")
    return share * chip.rate(dtype)


def _flops(shape: ModelShape, tokens: int, t: int) -> tuple[dict[tuple[str, str], int], float]:
    """Forward FLOPs of the fullest rank: by half and matrix, and those of all scores."""
    if shape.experts or shape.latent:
        raise ValueError("shape has experts or latent attention, must have neither")
    D, K, H = shape.width, shape.key_width, -(-shape.heads // t)
    G, F = max(1, -(-shape.groups // t)), -(-shape.ffn // t)
    seen = shape.seq
    if shape.windowed:
        seen -= shape.windowed * (seen - min(seen, shape.window)) / shape.layers
    columns = {
        ("attention", "first"): (H + 2 * G) * K,
        ("attention", "second"): H * K,
        ("mlp", "first"): 2 * F if shape.gated else F,
        ("mlp", "second"): F,
    }
    return {name: 2 * tokens * D * n for name, n in columns.items()}, 4 * tokens * seen * H * K
