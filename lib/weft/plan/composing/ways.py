"""What a group of ranks sends through: a link inside a node, or rings through several nodes."""

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
    here = gcd(n, max(1, cluster.node // apart))
    if here == n or cluster.devices <= cluster.node:
        return Rings(inside, TAKEN_INSIDE)
    nodes = -(-n // here)
    late = (nodes * between.latency + (n - nodes) * inside.latency) / n
    return Rings(Link("rings", ring_bandwidth(n, between, inside, here), late), TAKEN_BETWEEN)


def hop(cluster: Cluster, n: int, apart: int) -> Link:
    """Along n ranks that are so far apart: inside a node only if all of them are in one."""
    if n * apart <= cluster.node:
        return reached(cluster.inside, INSIDE)
    return reached(cluster.between, BETWEEN)
