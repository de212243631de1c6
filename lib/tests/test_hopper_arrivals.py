"""A barrier hears of all warps, not of the first: what the interpreter of Gluon cannot see.

An arrival at an mbarrier is one thread's, on behalf of its partition of warps. Unless all of them
have met right before (bar.sync), it may tell the loader that a tile is free which a slower warp
has still to read. Triton puts that meeting there; how, has changed from release to release.
"""

import re

import pytest
import triton

from weft.bench import machine_code
from weft.kernels import compile_for
from weft.kernels.code.compile import Compiled

ARRIVE = re.compile(r"mbarrier\.arrive\.(?!expect_tx)\S+")
MEET = re.compile(r"bar(?:rier)?\.sync(?:\.aligned)?\s+(\d+)(?:, (\d+))?")
BREAKS = re.compile(
    r"wgmma\.(?:wait_group|mma_async)|mbarrier\.try_wait|\b(?:ld|st)\.shared|\bbra\b"
)
ONE_WARP = re.compile(r"bar\.warp\.sync")
PASSES = (
    "forward",
    "pingpong forward",
    "specialized forward",
    "dq",
    "dkdv",
    "fused",
    "fp8 forward",
)


def unguarded(ptx: str) -> list[str]:
    """Arrivals that no meeting of the partition comes right before, as lines of PTX with numbers.

    Nothing that a slower warp could still have to do may stand between the two: a wait, a
    product, a load or store of shared memory, or a branch.
    """
    found, met = [], False
    for number, line in enumerate(map(str.strip, ptx.splitlines()), 1):
        if ARRIVE.search(line) and not met:
            found.append(f"{number}: {line}")
        if MEET.search(line) or ONE_WARP.search(line):
            met = True
        elif BREAKS.search(line) or ARRIVE.search(line) or line.startswith("$"):
            met = met and line.startswith("$L__tmp")  # a label for debuggers
    return found


GOOD = """\
    bar.sync 2, 128;
    add.s32 %r1, %r2, 8;
$L__tmp1:
    @%p25 mbarrier.arrive.shared::cta.b64 _, [%r1];
"""


@pytest.mark.parametrize(
    "between",
    [
        "wgmma.wait_group.sync.aligned 0;", "mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], 0;",
        "ld.shared.b32 %r1, [%r2];", "@%p1 bra $L__BB0_1;", "$L__BB0_3:",
        "@%p2 mbarrier.arrive.shared::cta.b64 _, [%r3];",
    ],
)  # fmt: skip
def test_what_stands_between_is_seen(between):
    assert unguarded(GOOD) == []
    assert unguarded(GOOD.replace("bar.sync 2, 128;", ""))
    torn = GOOD.replace("add.s32", f"{between}\nadd.s32")
    assert len(unguarded(torn)) == 1
    expected = GOOD.replace("mbarrier.arrive.", "mbarrier.arrive.expect_tx.")
    assert unguarded(expected.replace("bar.sync 2, 128;", "")) == []  # the loader's, a single warp


@pytest.fixture(scope="module")
def built() -> list[Compiled]:
    names = tuple(f"{name} for sm_90 at width 128" for name in PASSES)
    return compile_for(machine_code.hopper, "sm_90", only=names)


def test_warps_meet_before_each_arrival(built):
    assert len(built) == len(PASSES)
    for one in built:
        assert one.ptx.count("mbarrier.arrive.shared") > 3, one.name
        assert unguarded(one.ptx) == [], f"{one.name}, Triton {triton.__version__}"
