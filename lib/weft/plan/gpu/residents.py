"""How many programs of a kernel one multiprocessor holds at once, and which resource stops more.

A program keeps its registers, its shared memory and the slots of its warps from its first
instruction to its last. The hardware starts another one on a multiprocessor when all that it
needs is free there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from weft.plan.arguments import chosen, instance, whole
from weft.plan.hardware import CHIPS, KIBI

WARP = 32  # threads
PARTITIONS = 4  # of a multiprocessor, each with a scheduler and a quarter of the registers
REGISTER_UNIT = 256  # registers that a warp is given at once: 8 for each of its threads
MOST_REGISTERS = 255  # of one thread
MOST_WARPS = 32  # of one program: 1024 threads


class Capacity(NamedTuple):
    """What one multiprocessor has room for: 32-bit `registers`, `warps`, `programs`.

    `shared` bytes of shared memory can be used by all programs together. Each takes `reserved`
    bytes more than it asks for, and its sum is rounded up to a multiple of `unit`. Each of its
    CUDA `cores` does one fp32 multiply-add in a clock.
    """

    capability: str
    shared: int
    reserved: int
    unit: int
    cores: int
    registers: int = 65536
    warps: int = 64
    programs: int = 32


def _capacity(chip: str, capability: str, reserved: int, unit: int, cores: int) -> Capacity:
    return Capacity(capability, CHIPS[chip].shared, reserved, unit, cores)


# NVIDIA's libcu++, cuda/__device/arch_traits.h, and units from the CUDA toolkit's cuda_occupancy.h;
# cores from the CUDA programming guide, by compute capability.
CAPACITIES = MappingProxyType(
    {
        "v100": _capacity("v100", "7.0", 0, 256, 64),
        "a100-40": _capacity("a100-40", "8.0", KIBI, 128, 64),
        "a100-80": _capacity("a100-80", "8.0", KIBI, 128, 64),
        "h100": _capacity("h100", "9.0", KIBI, 128, 128),
        "h200": _capacity("h200", "9.0", KIBI, 128, 128),
        "b200": _capacity("b200", "10.0", KIBI, 128, 128),
    }
)


class Needs(NamedTuple):
    """What one program takes: registers of each thread, warps, bytes of shared memory.

    `spilled` bytes of each thread did not fit into its registers.
    """

    registers: int
    warps: int = 4
    shared: int = 0
    spilled: int = 0


# The kernels of book/programs/gpu.py for fp32 on sm_90, by Triton 3.7: (elements, warps) -> needs.
ADD = Needs(26)
SOFTMAX = MappingProxyType(
    {
        (1024, 4): Needs(29, 4, 16),
        (4096, 4): Needs(79, 4, 16),
        (8192, 4): Needs(167, 4, 16),
        (16384, 4): Needs(168, 4, 16),
        (32768, 4): Needs(255, 4, 16, 552),
        (32768, 8): Needs(227, 8, 32),
    }
)


class Residents(NamedTuple):
    """The `programs` that one multiprocessor holds; `limits` says how many each resource allows."""

    programs: int
    warps: int
    occupancy: float
    limits: Mapping[str, int]

    @property
    def limit(self) -> str:
        """The resource that stops another program; the first of several."""
        return min(self.limits, key=self.limits.__getitem__)


def residents(chip: str, needs: Needs) -> Residents:
    """How many programs fit on one multiprocessor of a chip, by each resource and by all.

    Occupancy is resident warps over the most that the multiprocessor can hold. Registers are
    given to warps in units of 256 and within one partition of the multiprocessor. The arithmetic
    is that of NVIDIA's cuda_occupancy.h.

    >>> held = residents("h100", Needs(registers=79, warps=4, shared=16))
    >>> held.programs, held.limit, held.occupancy
    (6, 'registers', 0.375)
    """
    has, needs = CAPACITIES[chosen("chip", chip, CAPACITIES)], checked(needs)
    limits = {
        "warps": has.warps // needs.warps,
        "registers": _by_registers(has, needs),
        "shared memory": _by_shared(has, needs),
        "programs": has.programs,
    }
    programs = min(limits.values())
    warps = programs * needs.warps
    return Residents(programs, warps, warps / has.warps, MappingProxyType(limits))


def checked(needs: Needs) -> Needs:
    """Needs that are whole numbers, with no more warps than a program may have."""
    instance(Needs, needs=needs)
    registers, warps, shared, spilled = needs
    return Needs(
        whole("registers", registers),
        whole("warps", warps, most=MOST_WARPS),
        whole("shared", shared, least=0),
        whole("spilled", spilled, least=0),
    )


def _by_registers(has: Capacity, needs: Needs) -> int:
    """None where a thread wants more than 255, or the program more than there are."""
    a_warp = rounded(needs.registers * WARP, REGISTER_UNIT)
    together = a_warp * rounded(needs.warps, PARTITIONS)
    if needs.registers > MOST_REGISTERS or together > has.registers:
        return 0
    return PARTITIONS * (has.registers // PARTITIONS // a_warp) // needs.warps


def _by_shared(has: Capacity, needs: Needs) -> int:
    taken = rounded(needs.shared + has.reserved, has.unit)
    return has.shared // taken if taken else has.programs


def rounded(number: int, unit: int) -> int:
    """The next multiple of a unit.

    >>> rounded(79 * 32, 256)
    2560
    """
    return -(-whole("number", number, least=0) // whole("unit", unit)) * unit
