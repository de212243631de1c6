"""Seconds of one layer and of the model's ends, for a microbatch on one of t c ranks.

Matmuls go by their size: an output is cut into tiles, and so many multiprocessors compute as many
at a time, the last of which have idle neighbours. What is done element by element goes by its
bytes. One follows the other.
"""

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from weft.plan.collectives import seconds
from weft.plan.composing.cluster import Cluster
from weft.plan.composing.layout import Layout
from weft.plan.composing.reached import (
    BETWEEN,
    INSIDE,
    TAKEN_BETWEEN,
    TAKEN_INSIDE,
    TILES,
    flash_rates,
    matmul_rate,
    memory_rate,
    reached,
    sixteen,
)
from weft.plan.experts import sent as sent_to_experts
from weft.plan.hardware import Chip, Link
from weft.plan.memory.partition import BY_INPUTS, WHOLE, kv_width
from weft.plan.roofline import layer as layer_work
from weft.plan.roofline import softmax
from weft.plan.shape import ModelShape
from weft.plan.tensor.traffic import steps
from weft.plan.zero import ring_bandwidth

SIZE = 2  # bytes of an activation
GRADIENT = 4  # bytes of a weight's gradient while it is summed
SCORE = 5 * SIZE // 2  # of a naive attention's score for dropout: read, written, and its mask


class Way(NamedTuple):
    """What a group of ranks sends through, and the share of a chip that its collectives take."""

    link: Link
    taken: float


class Passes(NamedTuple):
    """Seconds of forward, of the inputs' gradients and of the weights'."""

    forward: float
    inputs: float
    weights: float

    @property
    def total(self) -> float:
        """All three."""
        return self.forward + self.inputs + self.weights


class LayerSeconds(NamedTuple):
    """What a layer's pass over a microbatch takes, by what it is spent on."""

    matmul: Passes
    attention: Passes
    elementwise: Passes
    recompute: float
    tensor: Passes
    context: Passes
    experts: Passes

    @property
    def forward(self) -> float:
        """From begin to end, forward."""
        return sum(getattr(self, part).forward for part in PARTS)

    @property
    def inputs(self) -> float:
        """What the layer before waits for, with recomputing."""
        return sum(getattr(self, part).inputs for part in PARTS) + self.recompute

    @property
    def weights(self) -> float:
        """What nobody waits for."""
        return sum(getattr(self, part).weights for part in PARTS)


PARTS = "matmul", "attention", "elementwise", "tensor", "context", "experts"
NONE = Passes(0.0, 0.0, 0.0)
OF_ATTENTION = "qkv", "q down", "q up", "kv down", "kv up", "out"


@lru_cache(maxsize=4096)
def way(cluster: Cluster, n: int, apart: int) -> Way:
    """Between n ranks that are so many numbers apart: rings through all of them.

    Each of the ranks that a node has of them sends out of it by a port of its own.
    """
    inside, between = reached(cluster.inside, INSIDE), reached(cluster.between, BETWEEN)
    here = max(1, min(n, cluster.node // apart))
    if here == n:
        return Way(inside, TAKEN_INSIDE)
    nodes = -(-n // here)
    late = (nodes * between.latency + (n - nodes) * inside.latency) / n
    link = Link("rings", ring_bandwidth(n, between, inside, here), late)
    return Way(link, TAKEN_BETWEEN)


def matmul_seconds(
    m: int, n: int, k: int, chip: Chip, dtype: str, parts: int = 1, stored: int = SIZE
) -> float:
    """C [m, n] = A [m, k] B [k, n], as `parts` of m / parts rows, each with its own B.

    Multiprocessors compute a tile each, in waves, and the last wave takes as long as any. At its
    end a tile moves `stored` bytes of each element, and nothing goes on beside.

    >>> from weft.plan.hardware import CHIPS
    >>> how = 8192, 8192, CHIPS["a100-80"], "bf16"
    >>> [f"{matmul_seconds(m, *how) * 1e3:.2f} ms" for m in (128, 2048, 8192)]
    ['0.14 ms', '1.26 ms', '4.78 ms']
    """
    rate, speed = matmul_rate(chip, dtype), memory_rate(chip)
    size = 1 if dtype == "fp8" else SIZE
    rows = -(-m // parts)
    computing = 2 * m * n * k / rate
    if chip.sms:
        waves = (
            ceil(parts * ceil(rows / tall) * ceil(n / wide) / chip.sms) * tall * wide / share
            for tall, wide, share in TILES
        )
        computing = min(waves) * 2 * k * chip.sms / rate
    return max(computing, (m * k + parts * k * n) * size / speed) + m * n * stored / speed


def layer_seconds(kind: ModelShape, layout: Layout, cluster: Cluster, dtype: str) -> LayerSeconds:
    """A layer of a model whose layers are alike, on the device that has most of it."""
    key = layout.t, layout.c, layout.e, layout.microbatch, layout.sequence_parallel
    return _layer(kind, *key, layout.recompute, layout.d, cluster, dtype)


@lru_cache(maxsize=4096)
def _layer(
    kind: ModelShape,
    t: int,
    c: int,
    e: int,
    microbatch: int,
    sequence_parallel: bool,
    recompute: str,
    d: int,
    cluster: Cluster,
    dtype: str,
) -> LayerSeconds:
    chip = cluster.chip
    tokens = microbatch * kind.seq // c
    matmul, by_name = _matmuls(kind, tokens, t, e, cluster, dtype)
    attention = _attention(kind, microbatch, t, c, cluster)
    elementwise = _elementwise(kind, microbatch, t, c, sequence_parallel, cluster)
    if late := cluster.runs.late:
        elementwise = Passes(elementwise.forward + late, elementwise.inputs + 2 * late, 0.0)
    tensor, again = _tensor(kind, tokens, t, sequence_parallel, recompute, by_name, cluster)
    context = _context(kind, microbatch, t, c, attention, cluster)
    experts = _experts(kind, tokens, t, c, e, cluster)
    repeated = {
        "none": 0.0,
        "selective": attention.forward,
        "full": matmul.forward + attention.forward + elementwise.forward
        + again + context.forward + experts.forward,
    }[recompute]  # fmt: skip
    return LayerSeconds(matmul, attention, elementwise, repeated, tensor, context, experts)


def _matmuls(
    kind: ModelShape, tokens: int, t: int, e: int, cluster: Cluster, dtype: str
) -> tuple[Passes, dict[tuple[str, str], float]]:
    """All matmuls with weights; and of each half's first and second what forward takes."""
    forward = inputs = weights = 0.0
    halves: dict[tuple[str, str], float] = {}
    for name, (k, n) in kind.matrices.items():
        k, n = _cut(kind, name, k, n, t)
        one = _three(tokens, n, k, cluster, dtype)
        forward, inputs, weights = forward + one[0], inputs + one[1], weights + one[2]
        half = "attention" if name in OF_ATTENTION else "mlp"
        which = "second" if name in BY_INPUTS else "first"
        halves[half, which] = halves.get((half, which), 0.0) + one[0]
    if kind.experts:
        here = max(1, kind.experts.count // e)
        for name, (k, n) in kind.expert_matrices.items():
            k, n = _cut(kind, name, k, n, t)
            one = _three(tokens * kind.experts.active, n, k, cluster, dtype, here)
            forward, inputs, weights = forward + one[0], inputs + one[1], weights + one[2]
            which = "mlp", "second" if name in BY_INPUTS else "first"
            halves[which] = halves.get(which, 0.0) + one[0]
    return Passes(forward, inputs, weights), halves


def _three(
    m: int, n: int, k: int, cluster: Cluster, dtype: str, parts: int = 1
) -> tuple[float, float, float]:
    """Y = X W, dX = dY W^T and dW = X^T dY, which is added to what there is."""
    chip, summed = cluster.chip, cluster.runs.summed
    return (
        matmul_seconds(m, n, k, chip, dtype, parts),
        matmul_seconds(m, k, n, chip, dtype, parts),
        parts * matmul_seconds(k, n, max(1, m // parts), chip, dtype, stored=summed),
    )


def _cut(kind: ModelShape, name: str, k: int, n: int, t: int) -> tuple[int, int]:
    """Inputs and outputs of a matrix on one of t ranks."""
    if name in WHOLE:
        return k, n
    if name in BY_INPUTS:
        return max(1, k // t), n
    if name == "qkv":
        return k, kind.heads // t * kind.key_width + 2 * kv_width(kind, t)
    return k, max(1, n // t)


def _attention(kind: ModelShape, microbatch: int, t: int, c: int, cluster: Cluster) -> Passes:
    """Scores, softmax and the product with the values; half of the scores where they are skipped.

    A "naive" kernel computes and moves all of them, and drops some out.
    """
    chip, T, K = cluster.chip, kind.seq, kind.score_width
    H = max(1, kind.heads // t)
    seen = T
    if kind.windowed:
        seen -= kind.windowed * (T - min(T, kind.window)) / kind.layers
    scores = microbatch * H * T * seen / c
    along = microbatch * H * T * K * SIZE / c / memory_rate(chip)
    if cluster.runs.attention == "flash":
        rates = flash_rates(chip)
        flops = 4 * scores * K * (0.5 if seen > T / 2 else 1.0)
        return Passes(max(flops / rates[0], 4 * along), max(2.5 * flops / rates[1], 8 * along), 0.0)
    rate = matmul_rate(chip, sixteen(chip))
    moved = scores * SIZE / memory_rate(chip)
    one = 2 * scores * K / rate + moved + 2 * along
    dropped = scores * SCORE / memory_rate(chip)
    forward = 2 * one + 2 * moved + dropped
    return Passes(forward, 4 * one + 3 * moved + dropped, 0.0)


@lru_cache(maxsize=256)
def _moved(kind: ModelShape, fused: bool) -> tuple[float, float]:
    """Bytes that a sequence's forward moves element by element: of all width, and cut by t."""
    parts = layer_work(kind, 1, SIZE, fuse=fused)
    whole = sum(parts[name].bytes for name in ("norm", "add", "norm 2", "add 2"))
    cut = sum(parts[n].bytes for n in ("activation", "experts activation") if n in parts)
    if kind.experts:
        whole += 4 * kind.seq * kind.experts.active * kind.width * SIZE  # out in order, and back
    return whole, cut


def _elementwise(
    kind: ModelShape, microbatch: int, t: int, c: int, sequence_parallel: bool, cluster: Cluster
) -> Passes:
    """Norms, residuals and activations; backward moves twice as much."""
    whole, cut = _moved(kind, cluster.runs.fused)
    nbytes = microbatch * (whole / (t if sequence_parallel else 1) + cut / t) / c
    forward = nbytes / memory_rate(cluster.chip)
    return Passes(forward, 2 * forward, 0.0)


def _tensor(
    kind: ModelShape, tokens: int, t: int, sequence_parallel: bool, recompute: str,
    matmuls: dict[tuple[str, str], float], cluster: Cluster,
) -> tuple[Passes, float]:  # fmt: skip
    """What is not hidden of a layer's collectives, and apart what recomputing repeats of them.

    As in Megatron: in backward a collective that has to do with one gradient of a matrix goes on
    beside the other's matmul, which it makes slower.
    """
    if t == 1:
        return NONE, 0.0
    through = way(cluster, t, 1)
    nbytes = tokens * kind.width * SIZE
    forward = backward = again = 0.0
    # what "full" repeats comes before the rest, and all of it is as in forward
    repeats, hides = recompute == "full", "tensor" in cluster.runs.hides
    for call, which, apart in steps(t, sequence_parallel, "none", sequence_parallel):
        taken = seconds(call.op, nbytes, t, through.link)
        if call.passing == "forward":
            forward += taken
            again += taken if repeats else 0.0
            continue
        hidden = min(matmuls[call.half, which], taken) if apart and hides else 0.0
        backward += taken - hidden * (1 - through.taken)
    return Passes(forward, backward, 0.0), again


def _context(
    kind: ModelShape, microbatch: int, t: int, c: int, attention: Passes, cluster: Cluster
) -> Passes:
    """What is not hidden of a ring of keys and values: a block travels while one is computed."""
    if c == 1:
        return NONE
    through = way(cluster, c, t)
    width = kv_width(kind, t) if not kind.latent else kind.heads // t * kind.score_width
    block = 2 * microbatch * kind.seq // c * width  # elements of keys and values
    hop = through.link.latency + block * SIZE / through.link.bandwidth
    back = through.link.latency + block * (SIZE + GRADIENT) / through.link.bandwidth
    forward = (c - 1) * max(0.0, hop - attention.forward / c)
    return Passes(forward, (c - 1) * max(0.0, back - attention.inputs / c), 0.0)


def _experts(kind: ModelShape, tokens: int, t: int, c: int, e: int, cluster: Cluster) -> Passes:
    """Tokens on their way to experts and back, which nothing hides."""
    if e == 1 or not kind.experts:
        return NONE
    through = way(cluster, e, t)
    nbytes = sent_to_experts(tokens, kind.width, e, kind.experts.active, SIZE)
    taken = 2 * (e - 1) * through.link.latency + nbytes / through.link.bandwidth
    return Passes(taken, taken, 0.0)


# --- the ends -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _ends(
    shape: ModelShape, t: int, c: int, microbatch: int, sequence_parallel: bool,
    cluster: Cluster, dtype: str,
) -> tuple[LayerSeconds, LayerSeconds]:  # fmt: skip
    chip, tokens = cluster.chip, microbatch * shape.seq // c
    speed = memory_rate(chip)
    looked = 2 * tokens * shape.table * SIZE / speed  # rows in and out
    nbytes = tokens * shape.width * SIZE
    taken = seconds("all_reduce", nbytes, t, way(cluster, t, 1).link) if t > 1 else 0.0
    embedding = LayerSeconds(
        NONE, NONE, Passes(looked, looked, 0.0), 0.0, Passes(taken, 0.0, 0.0), NONE, NONE
    )
    columns = -(-shape.vocab // t)
    format_ = sixteen(chip) if dtype == "fp8" else dtype
    one = _three(tokens, columns, shape.table, cluster, format_)
    loss = softmax(tokens, columns, GRADIENT).bytes / speed
    head = LayerSeconds(
        Passes(*one), NONE, Passes(loss, loss, 0.0), 0.0,
        Passes(taken / 2 if sequence_parallel else 0.0, taken, 0.0), NONE, NONE,
    )  # fmt: skip
    return embedding, head


def end_seconds(
    shape: ModelShape, layout: Layout, cluster: Cluster, dtype: str
) -> tuple[LayerSeconds, LayerSeconds]:
    """What the first stage does besides its layers, and what the last: embedding; head and loss."""
    key = layout.t, layout.c, layout.microbatch, layout.sequence_parallel
    return _ends(shape, *key, cluster, dtype)
