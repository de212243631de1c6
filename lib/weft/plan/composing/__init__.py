"""Several cuts at once: layouts, clusters, and what a step of training costs under each."""

from weft.plan.composing.cluster import CLUSTERS, SOFTWARE, Cluster, Software
from weft.plan.composing.estimate import Estimate, estimate
from weft.plan.composing.layout import Layout
from weft.plan.composing.ranks import axes, coordinates, groups

__all__ = [
    "CLUSTERS",
    "SOFTWARE",
    "Cluster",
    "Estimate",
    "Layout",
    "Software",
    "axes",
    "coordinates",
    "estimate",
    "groups",
]
