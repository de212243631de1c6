"""Devices in nodes: a link to the others of the node, and one to the devices of other nodes."""

from dataclasses import dataclass, replace
from types import MappingProxyType

from weft.plan.arguments import amounts, chosen, instance, positive, row, sizes
from weft.plan.hardware import CHIPS, LINKS, Chip, Link
from weft.plan.memory import ATTENTIONS


@dataclass(frozen=True)
class Software:
    """What a training system did that no layout says.

    `attention` is its kernel: "naive" writes the scores to memory. `hides` names the messages that
    travel while something else computes: "tensor", "data", "pipeline". Stages 2 and 3 of ZeRO
    always hide theirs. `late` are seconds that a layer's forward waits for its kernels to be
    launched, and its backward twice that: 0 where launches run ahead; `each` are seconds that a
    rank loses with a microbatch. `summed` are the bytes that a weight's gradient has to wait for
    until it is added to the sum. `merged`: a row that goes to several experts of a node is sent
    there once, and dealt out inside. `flash` is what its attention reaches of a chip with fp8, of
    the 16-bit rate and in both passes, if not what `reached` says.
    """

    attention: str
    hides: tuple[str, ...] = ()
    late: float = 0.0
    each: float = 0.0
    summed: int = 4
    merged: bool = False
    flash: float | None = None
    source: str = ""

    def __post_init__(self):
        chosen("attention", self.attention, ATTENTIONS)
        for name in row("hides", self.hides, empty=True):
            chosen("hides", name, HIDDEN)
        amounts(late=self.late, each=self.each, summed=self.summed)
        instance(bool, merged=self.merged)
        if self.flash is not None:
            positive(flash=self.flash)
        instance(str, source=self.source)


HIDDEN = "tensor", "data", "pipeline"
SOFTWARE = MappingProxyType(
    {
        "2021": Software(
            "naive", summed=8, source="Megatron-LM v2, of Narayanan et al. 2021: the gradient is "
            "written, read, and added to one that is read and written, in 16 bits",
        ),
        "2022": Software(
            "naive", ("tensor",), source="Megatron-LM v3, of Korthikanti et al. 2022: a layer's "
            "messages go on beside weight gradients, which their matmul adds to a sum in fp32; "
            "messages of data had nothing beside them until 2023: its issue 391",
        ),
        "blocking": Software(
            "naive", late=0.875e-3, each=0.07, summed=14, source="Megatron-DeepSpeed with "
            "CUDA_LAUNCH_BLOCKING=1, as BLOOM's slurm script has it: 80 GPUs made 91.04 TFLOP/s "
            "with and 97.20 without it, 3.5 ms a layer and microbatch (tr11-176B-ml, "
            "chronicles-prequel.md); what a microbatch costs beside is fitted to its steps in "
            "fp16; and DeepSpeed's BF16_Optimizer adds gradients to fp32 apart",
        ),
        "today": Software(
            "flash", HIDDEN, merged=True, source="Megatron Core with Transformer Engine: flash "
            "attention, messages beside computing where nothing waits for them; experts' rows by "
            "DeepEP (megatron/core/transformer/moe/fused_a2a.py)",
        ),
        "pytorch": Software(
            "flash", HIDDEN, flash=0.35, source="FSDP with PyTorch's own attention of 2023 "
            "and 2024, FlashAttention-2, which makes 35 % of an H100's rate: Shah et al. 2024",
        ),
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`devices` chips, `node` of them in each node, numbered node by node.

    `inside` is all that one device has to the others of its node, `between` its share of what
    leads to other nodes: four cards of 12.5 GB/s for eight devices are 6.25 GB/s for each.
    `software` is one of SOFTWARE; if None, what there was in the chip's years: "today" for chips
    with fp8, "2022" for older ones, which planners of today should say otherwise.

    >>> pod = Cluster(
    ...     chip=CHIPS["h100"], devices=64, inside=LINKS["nvlink4"], between=LINKS["ib-ndr"]
    ... )
    >>> pod.nodes, pod.software
    (8, 'today')
    """

    chip: Chip
    devices: int
    node: int = 8
    inside: Link
    between: Link
    software: str | None = None
    source: str = ""

    def __post_init__(self):
        instance(Chip, chip=self.chip)
        instance(Link, inside=self.inside, between=self.between)
        instance(str, source=self.source)
        devices, node = sizes(devices=self.devices, node=self.node)
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "node", node)
        had = "today" if "fp8" in self.chip.rates else "2022"
        object.__setattr__(self, "software", had if self.software is None else self.software)
        chosen("software", self.software, SOFTWARE)

    @property
    def runs(self) -> Software:
        """What the software does."""
        return SOFTWARE[self.software]

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
            software="blocking" if name == "jean-zay" else None, source=source,
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
