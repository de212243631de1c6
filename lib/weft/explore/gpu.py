"""The sliders of the chapter on GPUs: the machine, hidden latency, residents, walls and waves."""

from weft.draw.gpu import (
    hiding_svg,
    machine_svg,
    residents_svg,
    walls_svg,
    waves_svg,
)
from weft.explore.box import chosen, explored
from weft.plan import gpu as plan
from weft.plan.arguments import sizes, whole
from weft.plan.gpu import GLOBAL, Needs
from weft.plan.hardware import CHIPS, KIBI
from weft.plan.roofline import vector_add
from weft.plan.units import amount, binary, count, percent, quantity

LINE = 16  # bytes that a thread may have asked for with one instruction


@explored
def machine(chip: str = "h100") -> tuple[str, str]:
    """The memories of a chip, and how many bytes have to be under way to use the outermost."""
    on = chosen("chip", chip, CHIPS)
    picture = machine_svg(chip)
    summary = (
        f"Memory holds {amount(on.memory / on.l2)} times as much as the L2 cache; all shared "
        f"memories together hold {quantity(on.sms * on.shared, 'B')} and are "
        f"{amount(plan.shared_bandwidth(chip) / on.bandwidth, 2)} times as fast. In the time in "
        f"which a byte comes from memory the tensor cores do "
        f"{amount(on.rate('fp16') / on.bandwidth, 3)} operations on numbers of 16 bits."
    )
    return picture, summary


@explored
def hiding(warps: int = 3, work: int = 2) -> tuple[str, str]:
    """So many warps that work for some clocks and wait for ten."""
    wait = 10
    picture = hiding_svg(warps, work, wait)
    share = plan.busy_share(warps, work, wait)
    enough = plan.warps_needed(work, wait)
    hidden = "Nothing is lost." if share == 1 else f"{enough} warps would hide all of the waiting."
    return picture, (
        f"{warps} {'warp' if warps == 1 else 'warps'}, {work} of {work + wait} clocks of each "
        f"with work: the scheduler is busy {percent(share)} of the time. {hidden}"
    )


@explored
def occupancy(
    chip: str = "h100", registers: int = 79, warps: int = 4, shared: int = 0
) -> tuple[str, str]:
    """Programs on one multiprocessor; `shared` in KiB, registers of each thread."""
    on = chosen("chip", chip, CHIPS)
    needs = Needs(registers, warps, KIBI * whole("shared", shared, least=0))
    held = plan.residents(chip, needs)
    picture = residents_svg(chip, needs)
    if not held.programs:
        return picture, f"Not one program fits: {held.limit} do not suffice."
    under_way = held.warps * plan.WARP * LINE
    speed = plan.reached(on, under_way * on.sms, GLOBAL / plan.clock("h100"))
    return picture, (
        f"{held.programs} programs, {held.warps} warps: an occupancy of {percent(held.occupancy)}, "
        f"limited by {held.limit}. If each thread has asked for {LINE} bytes, {binary(under_way)} "
        f"are under way to each multiprocessor: by Little's law enough for at most "
        f"{percent(speed / on.bandwidth)} of the bandwidth, where a value takes "
        f"{quantity(GLOBAL / plan.clock('h100'), 's')}, and less where it takes longer."
    )


@explored
def walls(chip: str = "h100", n: int = 10**6, launch: int = 6) -> tuple[str, str]:
    """A vector add of n numbers in fp32, launched in so many microseconds."""
    on, (n, launch) = chosen("chip", chip, CHIPS), sizes(n=n, launch=launch)
    seconds = launch / 1e6
    picture = walls_svg(chip, "fp32", seconds, n)
    made = plan.walls(vector_add(n, 4), on, "fp32", seconds)
    even = plan.least_bytes(on, seconds)
    return picture, (
        f"{count(n)} numbers: {quantity(made.seconds, 's')} at least, and the wall is "
        f"{made.wall}; {percent(made.memory / made.seconds)} of the bandwidth is within reach. "
        f"Bytes take as long as the launch from {quantity(even, 'B')} on."
    )


@explored
def waves(programs: int = 300, each: int = 1, chip: str = "h100") -> tuple[str, str]:
    """Programs on a chip that holds `each` of them on a multiprocessor."""
    on, (programs, each) = chosen("chip", chip, CHIPS), sizes(programs=programs, each=each)
    made = plan.waves(programs, on.sms * each)
    return waves_svg(programs, on.sms * each), (
        f"{on.sms} multiprocessors with {each} programs each: {made.slots} slots. {programs} "
        f"programs take the time of {made.number} and use {percent(made.used)} of it."
    )
