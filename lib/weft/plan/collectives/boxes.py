"""Boxes of GPUs and what connects them: NVLink and its switches inside, network cards outside."""

from dataclasses import dataclass
from types import MappingProxyType

from weft.plan.arguments import instance, sizes, whole
from weft.plan.hardware import CHIPS, LINKS, Chip, Link


@dataclass(frozen=True)
class Box:
    """GPUs that reach each other at full speed, and their ways out.

    `inside` is everything that one GPU has inside the box: `lanes` NVLinks, spread over `switches`.
    `outside` is one network card's port, of which there is one for each GPU: card i of all boxes
    together is rail i. `host` is the PCIe slot that a card sits in.
    `reduces` says whether the switches can add up what passes through them (NVLink SHARP).
    """

    name: str
    gpus: int
    chip: Chip
    inside: Link
    lanes: int
    switches: int
    reduces: bool
    outside: Link
    host: Link
    source: str

    def __post_init__(self):
        sizes(gpus=self.gpus, lanes=self.lanes, switches=self.switches)
        instance(Chip, chip=self.chip)
        instance(Link, inside=self.inside, outside=self.outside, host=self.host)

    @property
    def wires(self) -> tuple[int, ...]:
        """How many of one GPU's NVLinks go to each switch, as evenly as they can.

        >>> BOXES["dgx-a100"].wires, BOXES["dgx-h100"].wires
        ((2, 2, 2, 2, 2, 2), (5, 5, 4, 4))
        """
        whole, more = divmod(self.lanes, self.switches)
        return (whole + 1,) * more + (whole,) * (self.switches - more)


@dataclass(frozen=True)
class BoxCluster:
    """Some boxes of one kind; rank r is GPU r % gpus of box r // gpus.

    >>> pair = BoxCluster(BOXES["dgx-h100"], nodes=2)
    >>> pair.n, pair.link(3, 5).name, pair.link(3, 11).name
    (16, 'nvlink4', 'ib-ndr')
    """

    box: Box
    nodes: int

    def __post_init__(self):
        instance(Box, box=self.box)
        object.__setattr__(self, "nodes", whole("nodes", self.nodes))

    @property
    def n(self) -> int:
        """How many GPUs there are."""
        return self.nodes * self.box.gpus

    def link(self, source: int, target: int) -> Link:
        """What a message between two ranks goes through."""
        for name, rank in (("source", source), ("target", target)):
            if rank not in range(self.n):
                raise ValueError(f"{name} is {rank!r}, must be from 0 to {self.n - 1}")
        same = source // self.box.gpus == target // self.box.gpus
        return self.box.inside if same else self.box.outside


_GUIDE = "NVIDIA {} user guide; {} NVLinks on each GPU, to {} NVSwitches"

BOXES = MappingProxyType(
    {
        name: Box(
            name, gpus, CHIPS[chip], LINKS[inside], lanes, switches, reduces,
            LINKS[outside], LINKS[host], source or _GUIDE.format(name.upper(), lanes, switches),
        )
        for name, gpus, chip, inside, lanes, switches, reduces, outside, host, source in (
            ("dgx-a100", 8, "a100-80", "nvlink3", 12, 6, False, "ib-hdr", "pcie4", ""),
            ("dgx-h100", 8, "h100", "nvlink4", 18, 4, True, "ib-ndr", "pcie5", ""),
            ("dgx-h200", 8, "h200", "nvlink4", 18, 4, True, "ib-ndr", "pcie5", ""),
            ("nvl72", 72, "b200", "nvlink5", 18, 18, True, "ib-ndr", "pcie5",
             "NVIDIA DGX SuperPOD reference architecture, DGX GB200: network fabrics"),
        )
    }
)  # fmt: skip
