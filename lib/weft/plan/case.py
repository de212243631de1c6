"""One model on one cluster, by every calculator: Llama 3 70B on 1,024 H100s.

The appendix of the book asks the other chapters' functions. What stands here puts their arguments
together, so that a layout, a search and a number of days are about the same run.
"""

from dataclasses import replace
from functools import lru_cache

from weft.plan.arguments import amounts, instance, positive, whole
from weft.plan.composing import (
    CLUSTERS,
    Cluster,
    Estimate,
    Layout,
    estimate,
    search_for,
    why,
)
from weft.plan.decode import SERVED, Server
from weft.plan.hardware import CHIPS, LINKS, Link
from weft.plan.shape import SHAPES, Experts, ModelShape

CASE_TOKENS = 15 * 10**12  # to train on
CASE_BATCH = 1 << 23  # tokens of a step
CASE_LENGTHS = 8192, 131072  # of a sequence: at first, and at the end
KEPT_BACK = 4e9  # bytes of each GPU for what the plan does not count
CASE_LAYOUT = {"t": 4, "p": 4, "c": 2, "d": 32, "v": 5, "zero": 1}
CASE_LONG = {"t": 4, "c": 16, "d": 16, "zero": 3}
FASTEST, MOST_DEVICES = 1e6, 1 << 17  # Gbit/s of a port, GPUs of a cluster
FAILED = 419, 54, 16384  # Llama 3, section 3.3.4: unexpected interruptions, days, GPUs
Found = tuple[Layout, Estimate]


def case_model(seq: int = CASE_LENGTHS[0], kind: str = "dense") -> ModelShape:
    """Llama 3 70B on sequences of that length, or one of as many active parameters.

    "experts" has eight experts of half the hidden width for each MLP, two of which a token meets;
    "windows" lets five of six layers look back 1,024 tokens, as Gemma 3 does.

    >>> [f"{case_model(kind=kind).params / 1e9:.1f}" for kind in ("dense", "experts", "windows")]
    ['70.6', '239.7', '70.6']
    >>> f"{case_model(kind='experts').active_params / 1e9:.1f}"
    '70.6'
    """
    dense = replace(SERVED["llama3-70b"], seq=whole("seq", seq))
    others = {
        "dense": {},
        "experts": {"experts": Experts(count=8, active=2, hidden=dense.ffn // 2)},
        "windows": {"window": 1024, "windowed": dense.layers * 5 // 6},
    }
    if kind not in others:
        raise ValueError(f"kind is {kind!r}, must be one of {', '.join(others)}")
    return replace(dense, **others[kind])


def case_cluster(devices: int = 1024, gbit: float = 400, chip: str = "h100") -> Cluster:
    """DGX nodes with a port of so many Gbit/s for each GPU; its memory is less what is kept back.

    >>> case_cluster(gbit=200).between.bandwidth, case_cluster(chip="h200").chip.memory
    (25000000000.0, 137000000000.0)
    """
    (gbit,) = positive(gbit=gbit)
    if gbit > FASTEST:
        raise ValueError(f"gbit is {gbit}, must be at most {FASTEST}")
    devices = whole("devices", devices, most=MOST_DEVICES)
    if chip not in ("h100", "h200"):
        raise ValueError(f"chip is {chip!r}, must be h100 or h200")
    less = replace(CHIPS[chip], memory=CHIPS[chip].memory - KEPT_BACK)
    port = Link(f"{gbit:g} Gbit/s", gbit / 8 * 1e9, LINKS["ib-ndr"].latency, "a port for each GPU")
    return replace(CLUSTERS["h100-pod"].of(devices), chip=less, between=port)


def case_step(
    seq: int = CASE_LENGTHS[0], tokens: int = CASE_BATCH, dtype: str = "bf16",
    kind: str = "dense", cluster: Cluster | None = None, **layout: int | str,
) -> Estimate:  # fmt: skip
    """A step of so many tokens under a layout, which is sequence parallel where t is above 1."""
    chosen = Layout(sequence_parallel=layout.get("t", 1) > 1, **layout)
    at = case_cluster(chosen.devices) if cluster is None else cluster
    return estimate(case_model(seq, kind), chosen, _sequences(seq, tokens), at, dtype)


def _sequences(seq: int, tokens: int) -> int:
    """How many sequences of a length so many tokens are."""
    seq, tokens = whole("seq", seq), whole("tokens", tokens)
    if tokens % seq:
        raise ValueError(f"seq is {seq}, must divide tokens = {tokens}")
    return tokens // seq


@lru_cache(maxsize=32)
def case_best(
    seq: int = CASE_LENGTHS[0], tokens: int = CASE_BATCH, devices: int = 1024, gbit: float = 400,
    chip: str = "h100", kind: str = "dense", system: str = "megatron", keep: int = 5,
    dtype: str = "bf16",
) -> tuple[Found, ...]:  # fmt: skip
    """The fastest layouts that fit and that the system can say, each of another p, t and c."""
    cluster = case_cluster(devices, gbit, chip)
    shape, batch = case_model(seq, kind), _sequences(seq, tokens)
    return tuple(search_for(system, shape, batch, cluster, dtype, keep))


def case_decisions() -> list[tuple[str, Estimate]]:
    """From sharding alone to the layout that is chosen: a row for each thing that is decided."""
    return [
        ("ZeRO-3 alone, d 1,024", case_step(d=1024, zero=3)),
        ("all recomputed", case_step(d=1024, zero=3, recompute="full")),
        ("t 8, d 128, ZeRO-1", case_step(t=8, d=128, zero=1)),
        ("t 8, p 4, d 32", case_step(t=8, p=4, d=32, zero=1)),
        ("t 4, p 4, d 64", case_step(t=4, p=4, d=64, zero=1)),
        ("t 4, p 4, c 2, d 32", case_step(**CASE_LAYOUT | {"v": 1})),
        ("the same, v 5", case_step(**CASE_LAYOUT)),
    ]


def case_long() -> list[tuple[str, Estimate]]:
    """Layouts for sequences of 131,072 tokens, the one that is chosen last."""
    seq = CASE_LENGTHS[1]
    return [
        ("t 4, p 4, c 2, d 32, as before", case_step(seq, **CASE_LAYOUT | {"v": 1})),
        ("t 4, p 4, c 16, d 4, v 5", case_step(seq, t=4, p=4, c=16, d=4, v=5, zero=1)),
        ("t 8, p 4, c 8, d 4, v 5", case_step(seq, t=8, p=4, c=8, d=4, v=5, zero=1)),
        ("t 8, c 8, d 16, ZeRO-3", case_step(seq, t=8, c=8, d=16, zero=3)),
        ("t 4, c 16, d 16, ZeRO-3", case_step(seq, **CASE_LONG)),
    ]


def case_why(faster: Estimate, slower: Estimate) -> tuple[str, ...]:
    """How much slower the second is, and three parts on which it spends more or less, or "".

    >>> rows = case_decisions()
    >>> case_why(rows[6][1], rows[5][1])[:2]
    ('7.0 % slower', '509 ms more of bubble')
    """
    instance(Estimate, faster=faster, slower=slower)
    start, _, parts = why(faster, slower).partition(": ")
    return (start, *parts.split(", "), "", "", "")[:4]


def case_days(costs: Estimate, tokens: float = CASE_TOKENS, batch: int = CASE_BATCH) -> float:
    """Days of steps like this for so many tokens, if nothing fails."""
    instance(Estimate, costs=costs)
    (tokens,) = amounts(tokens=tokens)
    return tokens / whole("batch", batch) * costs.seconds / 86400


def days_at(mfu: float, tokens: float = CASE_TOKENS, devices: int = 1024) -> float:
    """Days for so many tokens at a share of the peak, by the FLOPs of a sequence of 8,192.

    >>> round(days_at(1.0)), round(days_at(0.4))
    (82, 206)
    """
    (mfu,), (tokens,) = positive(mfu=mfu), amounts(tokens=tokens)
    shape = case_model()
    rate = CHIPS["h100"].rate("bf16") * whole("devices", devices)
    return tokens / shape.seq * shape.flops(1) / (mfu * rate) / 86400


def mean_time_between(devices: int = 1024) -> float:
    """Seconds between failures that stop a run, at the rate of Llama 3's 16,384 GPUs.

    >>> round(mean_time_between(16384) / 3600, 1), round(mean_time_between() / 3600)
    (3.1, 49)
    """
    times, days, gpus = FAILED
    return days * 86400 / times * gpus / whole("devices", devices)


def young_interval(write: float, devices: int = 1024) -> float:
    """Seconds between checkpoints with which least is lost: the root of 2 delta M.

    `write` is for how long a checkpoint stops training. Young 1974.

    >>> round(young_interval(60) / 60)
    77
    """
    (write,) = positive(write=write)
    return (2 * write * mean_time_between(devices)) ** 0.5


def lost_share(
    write: float, restart: float, every: float | None = None, devices: int = 1024
) -> float:
    """The share of time that checkpoints, work done twice, and restarts take, in seconds each.

    >>> f"{lost_share(60, 600):.1%} {lost_share(60, 600, every=6 * 3600):.1%}"
    '2.9% 6.7%'
    """
    write, restart = amounts(write=write, restart=restart)
    every = young_interval(write, devices) if every is None else every
    (every,) = positive(every=every)
    return write / every + (every / 2 + restart) / mean_time_between(devices)


def case_server(n: int = 4, cache: int = 2) -> Server:
    """The model on n H100s: 80 % of the bandwidth, two all-reduces of 10 us in each layer."""
    n = whole("n", n)
    return Server(
        SERVED["llama3-70b"], CHIPS["h100"], n, cache, reached=0.8, wait=2 * 80 * 10e-6 * (n > 1)
    )


def hours_per_million(server: Server, context: int, limit: float) -> float:
    """GPU-hours for a million tokens, with the largest batch whose step keeps the limit.

    >>> f"{hours_per_million(case_server(8), 8192, 0.03):.2f}"
    '0.39'
    """
    instance(Server, server=server)
    batch = server.batch(context, limit)
    if not batch:
        rule = "must leave room and time for one sequence"
        raise ValueError(f"context is {context} and limit is {limit}, {rule}")
    return server.n * 1e6 / server.rate(batch, context) / 3600


@lru_cache(maxsize=1)
def case_bloom() -> tuple[Found, ...]:
    """The design problem's answer: BLOOM on 512 H200s, by what Megatron-LM can say."""
    cluster = CLUSTERS["h200-pod"].of(512)
    return tuple(search_for("megatron", SHAPES["bloom-176b"], 2048, cluster, keep=2))
