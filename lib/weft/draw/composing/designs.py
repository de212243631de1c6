"""The chapter's design problems: a model, a cluster and a batch, under a few layouts."""

from dataclasses import replace
from functools import lru_cache

from weft.draw.composing.atlas import candidates
from weft.draw.composing.steps import BATCH, DEVICES, MODEL
from weft.plan.composing import (
    CLUSTERS,
    Cluster,
    Compared,
    Estimate,
    Layout,
    compared,
    estimate,
    search,
    why,
)
from weft.plan.hardware import CHIPS, LINKS, Link
from weft.plan.shape import SHAPES, ModelShape

Rows = list[tuple[str, Estimate]]
TOKENS = 1 << 22  # of a step of Llama 3 405B here


def llama405(seq: int) -> ModelShape:
    """Llama 3 405B on sequences of that length, as its config.json has it.

    >>> f"{llama405(8192).params / 1e9:.1f}"
    '405.9'
    """
    sizes = {"layers": 126, "width": 16384, "heads": 128, "kv_heads": 8, "hidden": 53248}
    return replace(SHAPES["llama3-8b"], seq=seq, **sizes)


def llama(seq: int, **layout: int | str) -> Estimate:
    """Llama 3 405B on 1,024 H100s, 4 million tokens a step."""
    chosen = Layout(sequence_parallel=layout.get("t", 1) > 1, **layout)
    return estimate(llama405(seq), chosen, TOKENS // seq, CLUSTERS["h100-pod"].of(1024))


def short() -> Rows:
    """At 8,192 tokens a sequence."""
    deep = {"t": 8, "p": 16, "v": 4, "zero": 1}
    return [
        ("t 8, p 16, d 8", llama(8192, **deep, d=8)),
        ("the same, all recomputed", llama(8192, **deep, d=8, recompute="full")),
        ("t 8, p 16, c 2, d 4", llama(8192, **deep, c=2, d=4)),
        ("t 4, p 16, c 8, d 2", llama(8192, t=4, p=16, v=4, zero=1, c=8, d=2)),
        ("t 2, d 512, ZeRO-3", llama(8192, t=2, d=512, zero=3, recompute="full")),
    ]


def long() -> Rows:
    """At 131,072 tokens a sequence, of which there are 32."""
    full = {"recompute": "full"}
    return [
        ("t 8, p 16, c 2, d 4", llama(131072, t=8, p=16, zero=1, c=2, d=4)),
        ("t 8, p 16, c 8", llama(131072, t=8, p=16, v=4, zero=1, c=8)),
        ("t 8, p 8, c 16, full", llama(131072, t=8, p=8, v=4, zero=1, c=16, **full)),
        ("t 8, c 4, d 32, ZeRO-3, full", llama(131072, t=8, c=4, d=32, zero=3, **full)),
        ("c 32, d 32, ZeRO-3, full", llama(131072, c=32, d=32, zero=3, **full)),
    ]


@lru_cache(maxsize=1)
def found() -> Rows:
    """What a search finds for the worked example without context ranks, fastest first.

    The last is the best that Megatron-LM has a schedule for.
    """
    cluster = CLUSTERS["selene"].of(DEVICES)
    best = search(SHAPES[MODEL], BATCH, cluster, keep=4, c=1)
    return [(_named(layout), said) for layout, said in [*best, interleaved()]]


@lru_cache(maxsize=1)
def interleaved() -> tuple[Layout, Estimate]:
    """The fastest for the worked example with what Megatron-LM has: 1F1B, interleaved, ZeRO-1."""
    how = {"c": 1, "zero": 1, "schedule": "one_f_one_b"}
    return search(SHAPES[MODEL], BATCH, CLUSTERS["selene"].of(DEVICES), keep=1, **how)[0]


def worst(table: str) -> Compared:
    """The row of a published table whose estimate is farthest off."""
    return max(compared(table), key=lambda one: abs(one.error))


def reasons() -> tuple[str, ...]:
    """Why the second of these is slower than the first: how much, and at most three parts of it."""
    start, _, parts = why(found()[0][1], found()[1][1]).partition(": ")
    return (start, *parts.split(", "), "", "")[:4]


def _named(layout: Layout) -> str:
    how = f"{layout.schedule}, " if layout.p > 1 else ""
    axes = f"t {layout.t}, p {layout.p}, d {layout.d}"
    return f"{axes}, {how}ZeRO-{layout.zero}".replace("interleaved", f"v {layout.v}")


@lru_cache(maxsize=1)
def ranked() -> tuple[float, ...]:
    """Seconds of all the layouts of the worked example that fit, fastest first.

    Those are of powers of two, as the map's, with attention recomputed, or everything.
    """
    shape, cluster = SHAPES[MODEL], CLUSTERS["selene"].of(DEVICES)
    found = []
    for layout in candidates(shape, DEVICES, BATCH, cluster.node):
        for recompute in "selective", "full":
            try:
                said = estimate(shape, replace(layout, recompute=recompute), BATCH, cluster)
            except ValueError:
                continue
            if said.fits:
                found.append(said.seconds)
    return tuple(sorted(found))


def llama70(gbit: float, batch: int = 128, **layout: int | str) -> Estimate:
    """Llama 2 70B on 64 H100s whose ports have so many Gbit/s."""
    port = Link(f"{gbit:g} Gbit/s", gbit / 8 * 1e9, LINKS["ib-ndr"].latency, "a port for each GPU")
    cluster = Cluster(chip=CHIPS["h100"], devices=64, inside=LINKS["nvlink4"], between=port)
    chosen = Layout(sequence_parallel=layout.get("t", 1) > 1, **layout)
    return estimate(SHAPES["llama2-70b"], chosen, batch, cluster)


def bloom(**layout: int) -> Estimate:
    """BLOOM's last 2,048 sequences on its 384 A100s, under a layout with ZeRO-1."""
    chosen = Layout(zero=1, recompute="full", **layout)
    return estimate(SHAPES["bloom-176b"], chosen, 2048, CLUSTERS["jean-zay"].of(384))


def trillion(**layout: int | str | bool) -> Estimate:
    """The model of a trillion on 3,072 A100s with a batch of 3,072, as Narayanan et al. had it."""
    cluster = CLUSTERS["selene"].of(3072)
    return estimate(SHAPES["gpt-1t"], Layout(**layout), 3072, cluster)
