"""All-reduces of few tokens, where latency counts more than bytes; and heads that are copied."""

from weft.plan.arguments import amount, instance, sizes
from weft.plan.collectives import RING_HOPS, volume
from weft.plan.hardware import Link


def one_shot(nbytes: float, t: int, link: Link) -> float:
    """Seconds of an all-reduce in which every rank sends all it has to all others, and adds.

    One message's latency, and t - 1 times the bytes, where a ring has 2 (t - 1) latencies and
    2 (t - 1) / t times. In between, weft.plan.collectives' "direct" has two latencies and a ring's
    bytes: a reduce-scatter and an all-gather, each at one stroke, what is called two-shot.

    >>> from weft.plan.collectives import seconds
    >>> from weft.plan.hardware import LINKS
    >>> link, token = LINKS["nvlink4"], 2 * 8192
    >>> two = seconds("all_reduce", token, 8, link, "direct")
    >>> f"{one_shot(token, 8, link) * 1e6:.1f}, {two * 1e6:.1f} us"
    '3.7, 6.9 us'
    """
    instance(Link, link=link)
    (t,), nbytes = sizes(t=t), amount("nbytes", nbytes)
    return link.latency + (t - 1) * nbytes / link.bandwidth if t > 1 else 0.0


def ring_of_few(nbytes: float, t: int, link: Link) -> float:
    """Seconds of NCCL's ring all-reduce inside a node in LL, its protocol for few bytes.

    A hop takes less time than in "Simple", and half of what is sent are flags. Neither NCCL's
    constant nor the launch is in it.

    >>> from weft.plan.hardware import LINKS
    >>> [f"{1e6 * ring_of_few(2**n, 8, LINKS['nvlink4']):.1f}" for n in (14, 18, 20)]
    ['8.5', '10.4', '16.6']
    """
    instance(Link, link=link)
    (t,), nbytes = sizes(t=t), amount("nbytes", nbytes)
    inside, _ = RING_HOPS["LL"]
    return 2 * (t - 1) * inside + 2 * volume("all_reduce", nbytes, t) / link.bandwidth


def one_shot_until(t: int, link: Link) -> float:
    """The bytes up to which one_shot is at least as fast as two shots; always, for two ranks.

    A latency more against (t - 1)(1 - 2 / t) times the bytes.

    >>> from weft.plan.hardware import LINKS
    >>> [round(one_shot_until(t, LINKS["nvlink4"]) / 1024) for t in (4, 8)]
    [996, 285]
    """
    instance(Link, link=link)
    (t,) = sizes(t=t)
    more = (t - 1) * (1 - 2 / t)
    return link.latency * link.bandwidth / more if more > 0 else float("inf")


def kv_share(G: int, t: int) -> tuple[int, int]:
    """Kv heads that the fullest of t ranks has, and on how many ranks the same one lies.

    >>> kv_share(8, 4), kv_share(8, 8), kv_share(8, 16)
    ((2, 1), (1, 1), (1, 2))
    """
    G, t = sizes(G=G, t=t)
    return max(1, -(-G // t)), max(1, -(-t // G))
