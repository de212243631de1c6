"""What an update on the host takes, and how many tokens a step needs to make that cheap."""

from dataclasses import dataclass
from types import MappingProxyType

from weft.plan.arguments import chosen, instance, positive, sizes
from weft.plan.hardware import LINKS
from weft.plan.offload.places import MACHINES

ADAM_BYTES = 28  # of a parameter in fp32: four are read, with the gradient, and three written
HOST_REACHES = 0.4  # of its channels' rate, as CPU-Adam of Ren et al. 2021 did on a DGX-2
DELAYS = ("after", "delayed")  # when the next step begins: see computing_share
STEP_FLOPS = 8  # of a parameter and token: 2 forward, 2 to recompute, 4 backward


@dataclass(frozen=True)
class Host:
    """The CPUs of a machine, shared by its devices; rates in bytes per second.

    `memory` is what all memory channels move together, reads and writes counted, `link` what one
    device and the host can send each other in one direction.
    """

    name: str
    devices: int
    memory: float
    link: float
    source: str = ""

    def __post_init__(self) -> None:
        sizes(devices=self.devices)
        positive(memory=self.memory, link=self.link)


def _channels(many: int, transfers: float) -> float:
    """The rate of memory channels, each 8 bytes wide."""
    return many * 8 * transfers


HOSTS = MappingProxyType(
    {
        host.name: host
        for host in (
            Host(
                "desktop", 1, _channels(2, 5600e6), LINKS["pcie4"].bandwidth,
                "two channels of DDR5-5600, a GPU on 16 lanes of PCIe 4",
            ),
            Host(
                "workstation", 1, _channels(8, 4800e6), LINKS["pcie5"].bandwidth,
                "eight channels of DDR5-4800, a GPU on 16 lanes of PCIe 5",
            ),
            Host(
                "one GPU of a DGX-2", 1, _channels(12, 2666e6), MACHINES["DGX-2"].link,
                "as DGX-2, with one GPU at work",
            ),
            Host(
                "DGX-2", 16, _channels(12, 2666e6), MACHINES["DGX-2"].link,
                "two Xeon 8168 with six channels of DDR4-2666 each",
            ),
            Host(
                "DGX H100", 8, _channels(16, 4800e6), LINKS["pcie5"].bandwidth,
                "two Xeon 8480C with eight channels of DDR5-4800 each",
            ),
            Host(
                "GH200", 1, 500e9, 450e9,
                "Lian et al. 2026: 500 GB/s of LPDDR5X; NVLink-C2C, 900 GB/s in both directions",
            ),
            Host("GB200", 2, 500e9, 450e9, "as GH200, with one Grace for two GPUs"),
        )
    }
)  # fmt: skip


def adam_time(
    params: float, host: Host, reached: float = HOST_REACHES, size: float = ADAM_BYTES
) -> float:
    """Seconds in which all CPUs of a host update `params` parameters, bound by its memory.

    Each moves `size` bytes; `reached` is the share of the channels' rate that is reached.

    >>> round(adam_time(10e9, HOSTS["DGX-2"]), 1)
    2.7
    """
    instance(Host, host=host)
    params, reached, size = positive(params=params, reached=reached, size=size)
    return size * params / (reached * host.memory)


def update_time(params: float, host: Host, reached: float = HOST_REACHES) -> float:
    """Seconds from the step's last gradient on the host to the last 16-bit weight on a device.

    Adam, then the copy up, each device bringing its shard over its own link; the gather that
    follows between devices is not counted, nor are clipping and casts as passes of their own.
    """
    return adam_time(params, host, reached) + 2 * params / (host.devices * host.link)


def computing_share(
    tokens: float, host: Host, flops: float, way: str = "after", reached: float = HOST_REACHES
) -> float:
    """The share of a step in which devices compute, over the tokens of all of them in a step.

    A device computes at `flops`, with recomputation. "after": the next step waits for the update,
    C / (C + U). "delayed": it computes meanwhile, C / max(C, U). The number of parameters is in
    both and cancels.

    >>> [f"{computing_share(2**16, HOSTS['DGX H100'], 4e14, way):.0%}" for way in DELAYS]
    ['58%', '100%']
    """
    (tokens, flops), update = positive(tokens=tokens, flops=flops), update_time(1, host, reached)
    compute = STEP_FLOPS * tokens / (host.devices * flops)
    if chosen("way", way, DELAYS) == "after":
        return compute / (compute + update)
    return compute / max(compute, update)


def tokens_for(
    share: float, host: Host, flops: float, way: str = "after", reached: float = HOST_REACHES
) -> float:
    """The tokens in a step, of all devices, from which on they compute `share` of the time.

    >>> round(tokens_for(0.8, HOSTS["GH200"], 4e14))
    28889
    """
    (share, flops), update = positive(share=share, flops=flops), update_time(1, host, reached)
    if share > 1 or (chosen("way", way, DELAYS) == "after" and share == 1):
        raise ValueError(f"share is {share}, must be below 1, or 1 with a delayed update")
    odds = share / (1 - share) if way == "after" else share
    return odds * update * host.devices * flops / STEP_FLOPS
