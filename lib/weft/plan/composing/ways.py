"""What ranks of a group send through: rings through nodes, one port to a neighbour, or both."""

from functools import lru_cache
from math import gcd
from typing import NamedTuple

from weft.plan.composing.cluster import Cluster
from weft.plan.composing.reached import BETWEEN, INSIDE, TAKEN_BETWEEN, TAKEN_INSIDE, reached
from weft.plan.hardware import Link
from weft.plan.zero import ring_bandwidth


class Rings(NamedTuple):
    """What a rank of a group has, and the share of a chip that its collectives take."""

    link: Link
    taken: float


@lru_cache(maxsize=4096)
def way(cluster: Cluster, n: int, apart: int) -> Rings:
    """Between n ranks whose numbers are so far apart: rings through all of them.

    Each rank that a node has of the group sends out of it by a port of its own, as in
    plan.zero.ring_bandwidth; of a ring's steps as many go between nodes as there are nodes. Where
    groups and nodes do not come out even, the node that has fewest of a group counts.

    >>> from weft.plan.composing import CLUSTERS
    >>> selene = CLUSTERS["selene"]
    >>> [f"{way(selene, 8, apart).link.bandwidth / 1e9:.1f} GB/s" for apart in (1, 2, 8)]
    ['240.0 GB/s', '94.0 GB/s', '23.5 GB/s']
    """
    inside, between = reached(cluster.inside, INSIDE), reached(cluster.between, BETWEEN)
    here = together(cluster, n, apart)
    if here == n:
        return Rings(inside, TAKEN_INSIDE)
    nodes = -(-n // here)
    late = (nodes * between.latency + (n - nodes) * inside.latency) / n
    return Rings(Link("rings", ring_bandwidth(n, between, inside, here), late), TAKEN_BETWEEN)


def hop(cluster: Cluster, n: int, apart: int) -> Link:
    """From each of n ranks that are so far apart to the next: one port, unless all are in a node.

    A rank at the edge of a node sends all that it has through its own port, and the others wait.
    """
    inside = together(cluster, n, apart) == n
    return reached(cluster.inside, INSIDE) if inside else reached(cluster.between, BETWEEN)


def exchange(
    cluster: Cluster, n: int, apart: int, nbytes: float, leaving: float | None = None
) -> float:
    """Seconds in which each of n ranks sends `nbytes` to the others, as much to each of them.

    What leaves a node goes through the rank's own port, the rest over its link inside, at once. No
    neighbour's port helps: all of them have as much to send. Every message has a latency. With
    `leaving` so many bytes leave a node instead, and the others have all that is sent dealt out.

    >>> from weft.plan.composing import CLUSTERS
    >>> pod = CLUSTERS["h100-pod"]
    >>> [f"{1e3 * exchange(pod, n, 1, 1e9):.1f} ms" for n in (8, 16, 64)]
    ['2.8 ms', '11.5 ms', '19.7 ms']
    """
    here = together(cluster, n, apart)
    if n == 1:
        return 0.0
    near = nbytes * (here - 1) / (n - 1)
    far = nbytes - near
    if leaving is not None:
        near, far = nbytes * n / (n - 1) * (here - 1) / here, leaving
    inside, between = reached(cluster.inside, INSIDE), reached(cluster.between, BETWEEN)
    return max(
        count * link.latency + sent / link.bandwidth
        for count, sent, link in ((here - 1, near, inside), (n - here, far, between))
    )


def together(cluster: Cluster, n: int, apart: int) -> int:
    """How many of n ranks that are so far apart are in the node that has fewest of them."""
    return n if cluster.devices <= cluster.node else gcd(n, max(1, cluster.node // apart))
