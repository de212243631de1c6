"""A cluster by its chip: nodes and links as its maker sells them, with today's software."""

from types import MappingProxyType

from weft.plan.arguments import chosen
from weft.plan.composing.cluster import Cluster
from weft.plan.hardware import CHIPS, LINKS, Link

NODE = 8  # devices in a node, where nobody says otherwise
USUAL = MappingProxyType(  # a chip -> its link inside a node, and a card for each to other nodes
    {
        "v100": ("pcie4", "ib-hdr"),
        "a100-40": ("nvlink3", "ib-hdr"),
        "a100-80": ("nvlink3", "ib-hdr"),
        "h100": ("nvlink4", "ib-ndr"),
        "h200": ("nvlink4", "ib-ndr"),
        "b200": ("nvlink5", "ib-ndr"),
    }
)


def cluster_of(
    chip: str,
    devices: int,
    node: int = NODE,
    inside: Link | None = None,
    between: Link | None = None,
    software: str = "today",
) -> Cluster:
    """`devices` of a chip by its name, on the links that are given or usual for it.

    >>> cluster_of("h100", 64).between.name
    'ib-ndr'
    """
    near, far = USUAL[chosen("chip", chip, USUAL)]
    return Cluster(
        chip=CHIPS[chip], devices=devices, node=node, software=software,
        inside=LINKS[near] if inside is None else inside,
        between=LINKS[far] if between is None else between,
    )  # fmt: skip
