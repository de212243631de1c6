"""Several cuts at once: layouts, clusters, and what a step of training costs under each."""

from weft.plan.composing.cluster import CLUSTERS, Cluster
from weft.plan.composing.compare import why
from weft.plan.composing.estimate import Estimate, estimate
from weft.plan.composing.layout import Layout
from weft.plan.composing.ranks import axes, coordinates, groups
from weft.plan.composing.search import search

__all__ = [
    "CLUSTERS",
    "Cluster",
    "Estimate",
    "Layout",
    "axes",
    "coordinates",
    "estimate",
    "groups",
    "search",
    "why",
]
