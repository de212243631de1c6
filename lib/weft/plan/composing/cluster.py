"""Devices in nodes: a link to the others of the node, and one to the devices of other nodes."""

from dataclasses import dataclass, replace
from types import MappingProxyType

from weft.plan.arguments import chosen, instance, sizes
from weft.plan.hardware import CHIPS, LINKS, Chip, Link
from weft.plan.memory.activation import ATTENTIONS


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`devices` chips, `node` of them in each node, numbered node by node.

    `inside` is all that one device has to the others of its node, `between` its share of what
    leads to other nodes: four cards of 12.5 GB/s for eight devices are 6.25 GB/s for each.
    `attention` is the kernel that the cluster's software has, "naive" or "flash"; if None, what it
    had in the chip's years: flash from the first chips with fp8 on.

    >>> pod = Cluster(
    ...     chip=CHIPS["h100"], devices=64, inside=LINKS["nvlink4"], between=LINKS["ib-ndr"]
    ... )
    >>> pod.nodes, pod.attention
    (8, 'flash')
    """

    chip: Chip
    devices: int
    node: int = 8
    inside: Link
    between: Link
    attention: str | None = None
    source: str = ""

    def __post_init__(self):
        instance(Chip, chip=self.chip)
        instance(Link, inside=self.inside, between=self.between)
        instance(str, source=self.source)
        devices, node = sizes(devices=self.devices, node=self.node)
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "node", node)
        had = "flash" if "fp8" in self.chip.rates else "naive"
        chosen("attention", had if self.attention is None else self.attention, ATTENTIONS)
        object.__setattr__(self, "attention", self.attention or had)

    @property
    def nodes(self) -> int:
        """How many nodes there are, the last of which may have fewer devices."""
        return -(-self.devices // self.node)

    def of(self, devices: int) -> "Cluster":
        """So many devices of a cluster like this.

        >>> CLUSTERS["selene"].of(64).devices
        64
        """
        return replace(self, devices=devices)


_OMNI_PATH = Link(
    "omni-path", 6.25e9, LINKS["ib-hdr"].latency, "4 links of 100 Gbit/s for the 8 GPUs of a node"
)

CLUSTERS = MappingProxyType(
    {
        name: Cluster(
            chip=CHIPS[chip], devices=devices, inside=LINKS[inside],
            between=_OMNI_PATH if between == "omni-path" else LINKS[between], node=node,
            source=source,
        )
        for name, chip, devices, node, inside, between, source in (
            ("selene", "a100-80", 4480, 8, "nvlink3", "ib-hdr",
             "Narayanan et al. 2021, section 5: 8 A100-80 and 8 HDR cards in a node"),
            ("jean-zay", "a100-80", 416, 8, "nvlink3", "omni-path",
             "BigScience, tr11-176B-ml: 52 nodes of 8 A100-80, 4 Omni-Path links in a node"),
            ("h100-pod", "h100", 1024, 8, "nvlink4", "ib-ndr",
             "NVIDIA DGX SuperPOD reference architecture, DGX H100: a card for each GPU"),
            ("h200-pod", "h200", 1024, 8, "nvlink4", "ib-ndr",
             "NVIDIA DGX SuperPOD reference architecture, DGX H200: a card for each GPU"),
            ("nvl72-pod", "b200", 576, 72, "nvlink5", "ib-ndr",
             "NVIDIA DGX SuperPOD reference architecture, DGX GB200: 8 racks of 72 GPUs"),
        )
    }
)  # fmt: skip
