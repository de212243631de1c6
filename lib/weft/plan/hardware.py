"""Chips and the links between them: what their makers promise, as data with its source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from weft.plan.arguments import LARGEST, amounts, chosen, instance, positive

SIZES = MappingProxyType({"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1})
TERA, GIGA, MEGA, KIBI = 10**12, 10**9, 10**6, 2**10


@dataclass(frozen=True)
class Chip:
    """One accelerator: `rates` in FLOP/s by dtype, `bandwidth` of its memory in bytes per second.

    Rates are dense: where a data sheet counts skipped zeros as work, half of what it prints. A
    dtype that is missing has no fast path. `memory` is in bytes as data sheets print it, `l2` the
    last-level cache, `shared` the on-chip memory of each of the `sms` multiprocessors, which a
    tile has to fit in. All are 0 where nothing is known, as for a roof that was measured.

    >>> chip = CHIPS["h100"]
    >>> chip.rate("bf16") / chip.rate("tf32"), chip.shared // 1024
    (2.0, 228)
    """

    name: str
    rates: Mapping[str, float] = field(hash=False)
    bandwidth: float
    memory: float = 0
    sms: int = 0
    shared: int = 0
    l2: int = 0
    source: str = ""

    def __post_init__(self):
        instance(Mapping, rates=self.rates)
        object.__setattr__(self, "rates", MappingProxyType(dict(self.rates)))
        if not self.rates:
            raise ValueError("rates is empty, must hold at least one dtype and its FLOP/s")
        for dtype, rate in self.rates.items():
            if not (isinstance(rate, int | float) and 0 < rate <= LARGEST):
                raise ValueError(f"rates has {rate!r} for {dtype}, must be above 0 and finite")
        positive(bandwidth=self.bandwidth)
        amounts(memory=self.memory, sms=self.sms, shared=self.shared, l2=self.l2)

    def rate(self, dtype: str) -> float:
        """The most FLOP/s in matmuls of that dtype, dense; ValueError if it has no fast path."""
        if dtype not in self.rates:
            have = ", ".join(self.rates)
            raise ValueError(f"dtype is {dtype!r}, must be one that {self.name} has: {have}")
        return self.rates[dtype]


@dataclass(frozen=True)
class Link:
    """A connection: `bandwidth` in bytes per second in one direction, `latency` in seconds.

    Makers of NVLink add up both directions; here a link of 900 GB/s that way has 450. The
    bandwidth is that of everything one device has: all its NVLinks, 16 PCIe lanes, one port of
    InfiniBand. The latency is that of one step of a ring, as NCCL's cost model assumes it.
    """

    name: str
    bandwidth: float
    latency: float
    source: str = ""

    def __post_init__(self):
        positive(bandwidth=self.bandwidth)
        amounts(latency=self.latency)


def from_record(record: Any) -> Chip:
    """The roof that `weft bench roofline` measured, as a chip without any promises.

    Its rates are those of the results by "roof" in FLOP/s, one for each dtype; its bandwidth is
    the largest by "roof" in B/s. `record` is a weft.bench.record.Record.
    """
    if not hasattr(record, "results"):
        raise ValueError(f"record is {record!r}, must be a weft.bench.record.Record")
    roofs = [result for result in record.results if result.who == "roof"]
    rates = {result.name: result.value for result in roofs if result.unit == "FLOP/s"}
    bandwidths = [result.value for result in roofs if result.unit == "B/s"]
    if not rates or not bandwidths:
        raise ValueError("record has no roof, must be one that `weft bench roofline` wrote")
    source = f"{record.command}, {record.date}"
    return Chip(f"{record.chip} (measured)", rates, max(bandwidths), source=source)


def size_of(dtype: str) -> int:
    """Bytes of one element; ValueError for a dtype that is not in SIZES.

    >>> size_of("bf16"), size_of("tf32")
    (2, 4)
    """
    return SIZES[chosen("dtype", dtype, SIZES)]


def _chip(name, rates, bandwidth, memory, sms, shared, l2, source) -> Chip:
    """A chip from what a data sheet prints: TFLOP/s, GB/s, GB, KiB and MB."""
    rates = {dtype: rate * TERA for dtype, rate in rates.items()}
    sizes = bandwidth * GIGA, memory * GIGA, sms, shared * KIBI, l2 * MEGA
    return Chip(name, rates, *sizes, source)


_VOLTA = {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0}
_AMPERE = {"fp64": 9.7, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}
_HOPPER = {"fp64": 33.5, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9}
_BLACKWELL = {"fp64": 37, "fp32": 75, "tf32": 1125, "fp16": 2250, "bf16": 2250, "fp8": 4500}

# fp64 and fp32 are the rates of the ordinary cores, all others those of the tensor cores.
CHIPS = MappingProxyType(
    {
        name: _chip(name, *sheet)
        for name, *sheet in (
            ("v100", _VOLTA, 900, 32, 80, 96, 6, "NVIDIA V100 data sheet, SXM2 with 32 GB"),
            ("a100-40", _AMPERE, 1555, 40, 108, 164, 40, "NVIDIA A100 data sheet, SXM4, 40 GB"),
            ("a100-80", _AMPERE, 2039, 80, 108, 164, 40, "NVIDIA A100 data sheet, SXM4, 80 GB"),
            ("h100", _HOPPER, 3350, 80, 132, 228, 50, "NVIDIA H100 data sheet, SXM5"),
            ("h200", _HOPPER, 4800, 141, 132, 228, 60, "NVIDIA H200 data sheet, SXM; L2 by CUDA"),
            ("b200", _BLACKWELL, 8000, 180, 148, 228, 126, "NVIDIA HGX B200 data sheet"),
        )
    }
)

# Latencies: hwLatencies of the ring with protocol Simple in NCCL's src/graph/tuning.cc.
_NVLINK, _PCIE, _NETWORK = 3.4e-6, 5.7e-6, 14e-6

LINKS = MappingProxyType(
    {
        link.name: link
        for link in (
            Link("nvlink3", 300e9, _NVLINK, "A100 data sheet: 600 GB/s in both directions"),
            Link("nvlink4", 450e9, _NVLINK, "H100 data sheet: 900 GB/s in both directions"),
            Link("nvlink5", 900e9, _NVLINK, "B200 data sheet: 1800 GB/s in both directions"),
            Link("pcie4", 32e9, _PCIE, "PCI Express 4.0, 16 lanes at 16 GT/s"),
            Link("pcie5", 64e9, _PCIE, "PCI Express 5.0, 16 lanes at 32 GT/s"),
            Link("ib-hdr", 25e9, _NETWORK, "InfiniBand HDR, 200 Gbit/s a port"),
            Link("ib-ndr", 50e9, _NETWORK, "InfiniBand NDR, 400 Gbit/s a port"),
        )
    }
)
