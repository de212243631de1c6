"""What the compiler makes of the attention kernels: tensor cores used, nothing spilled."""

import re

import pytest
import torch
import triton

from weft.bench.record import read
from weft.kernels import attention_fa1, attention_naive, compile_for
from weft.kernels.attention import attention, passes
from weft.kernels.attention_tuned import SMALL, TARGETS, Tile, tile

STREAMS = {"forward", "dq", "dkdv"}  # the passes in which tiles of one side stream past the other
MENDS = {f"{name}_odd" for name in STREAMS}
PRODUCT = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}
WAIT = re.compile(r"cp\.async\.wait_group\s+(\d+)")
SPILLED = 0 if triton.__version__ >= "3.7" else 24  # the older assembler's, in dkdv
SHARED = {"sm_80": 163, "sm_90": 227, "sm_100": 227}  # KiB that a block can have


def forward():
    """A face with one pass, to save time: the record of the book has all, for every target."""


forward.passes = lambda target: passes(target)[:1]


@pytest.mark.parametrize(
    ("face", "target"), [(attention, "sm_90"), (forward, "sm_80"), (forward, "sm_100")]
)
def test_tuned_kernels_use_tensor_cores_and_spill_nothing(face, target):
    built = {one.name: one for one in compile_for(face, target)}
    assert face is forward or built.keys() == STREAMS | MENDS | {"delta"}
    for name, one in built.items():
        assert one.spills <= (SPILLED if name == "dkdv" else 0), name
        assert one.shared_bytes <= SHARED[target] * 1024, name
        product = "mma.sync" if name in MENDS else PRODUCT[target]  # their tiles are small
        assert (one.count(product) > 0) == (name != "delta"), name
    for one in (built[name] for name in STREAMS & built.keys()):
        # Where ptxas gives up on asynchrony, it puts a wait behind each and every wgmma.
        assert one.count("WARPGROUP.DEPBAR") <= one.count("HGMMA") / 3, one.name
        waits = [int(pending) for pending in WAIT.findall(one.ptx)]
        # In both loops the loads of the next tile stay in flight; behind them nothing does.
        assert sum(pending > 0 for pending in waits) >= 2, one.name


def test_nothing_spills_at_the_other_widths_either(root):
    record = read(root / "book/measured/attention-code.cpu.json")
    for width in (64, 128, 256):
        for name, target in ((name, target) for name in STREAMS | MENDS for target in TARGETS):
            assert record.result(f"{name} for {target} at width {width}", "spilled").value == 0
            assert record.result(f"{name} for {target} at width {width}", "registers").value <= 255


def test_warps_that_split_the_keys_exchange_what_warps_that_split_the_queries_do_not():
    (ours,) = compile_for(forward, "sm_80")
    (theirs,) = compile_for(attention_fa1.attention, "sm_80")
    assert theirs.spills == 0 and theirs.count("mma.sync") > 0
    assert theirs.count("STS") > ours.count("STS") and theirs.count("LDS") > ours.count("LDS")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("listed", [passes, attention_fa1.passes, attention_naive.passes])
def test_passes_are_listed_for_every_type_and_width(listed, target):
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for width in (16, 17, 64, 80, 128, 256):
            for one in listed(target, dtype=dtype, width=width, causal=False):
                assert {**one.signature, **one.constexprs}.keys() == set(one.function.arg_names)
                assert one.options["num_warps"] in (2, 4, 8, 16)
                assert one.constexprs.get("K", width) == one.constexprs.get("V", width) == width


def test_a_tile_is_at_least_what_a_tensor_core_takes_and_cuts_into_whole_edges():
    names = STREAMS | MENDS | {"delta", "fa1", "naive"}
    for name, target in ((name, target) for name in names for target in (*TARGETS, SMALL)):
        for size, width in ((2, 16), (2, 64), (2, 256), (4, 16), (4, 128), (4, 256)):
            one = tile(target, name, size, width)
            assert isinstance(one, Tile) and all(n % 16 == 0 for n in one[:3])
            assert one.q >= 16 and one.warps in (2, 4, 8)
            if name in STREAMS:
                streams = one.q if name == "dkdv" else one.k
                assert streams % one.edge == 0 and one.edge >= 16
