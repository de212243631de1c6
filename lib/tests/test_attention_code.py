"""What the compiler makes of the attention kernels: tensor cores used, nothing spilled."""

import re

import pytest
import torch
import triton

from weft.bench import machine_code
from weft.bench.record import read
from weft.kernels import compile_for
from weft.kernels.attention import fa1, naive
from weft.kernels.attention.face import passes
from weft.kernels.attention.tuned import SMALL, TARGETS, KernelTile, tile
from weft.kernels.code.loops import hot, plain

STREAMS = {"forward", "dq", "dkdv"}  # the passes in which tiles of one side stream past the other
ALL = STREAMS | {"delta"}
PRODUCT = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}
WAIT = re.compile(r"cp\.async\.wait_group\s+(\d+)")
# Bytes that the older assembler spills: in dkdv, and in FlashAttention-1 on an A100.
SPILLED, SPILLED_FA1 = (0, 0) if triton.__version__ >= "3.7" else (8, 72)
SHARED = {"sm_80": 163, "sm_90": 227, "sm_100": 227}  # KiB that a block can have


KIND = "at width 128"


def built(target, *names):
    """Passes at width 128 by their names, compiled in one process and remembered."""
    wanted = [f"{name} for {target} {KIND}" for name in sorted(names)]
    found = machine_code.built("attention", target, wanted)
    return {name.partition(" for ")[0]: one for name, one in ((x.name, x) for x in found)}


@pytest.mark.parametrize("target", TARGETS)
def test_tuned_kernels_use_tensor_cores_and_spill_nothing(target, root):
    """For the older and the newer chip one pass, to save time: the record has all of them."""
    listed = {one.name: one for one in machine_code.attention(target)}
    found = built(target, *(ALL if target == "sm_90" else ("forward",)))
    assert target != "sm_90" or found.keys() == ALL
    record, rows = read(root / "book/measured/attention-code.cpu.json"), []
    for name, one in found.items():
        assert one.spills <= (SPILLED if name == "dkdv" else 0), name
        assert one.shared_bytes <= SHARED[target] * 1024, name
        assert (one.count(PRODUCT[target]) > 0) == (name != "delta"), name
        rows += machine_code.differences(record, machine_code.counted(one, listed[one.name]))
    assert not rows, "\n" + machine_code.told(rows)
    for one in (found[name] for name in STREAMS & found.keys()):
        # Where ptxas gives up on asynchrony, it puts a wait behind each and every wgmma.
        assert one.count("WARPGROUP.DEPBAR") <= one.count("HGMMA") / 3, one.name
        waits = [int(pending) for pending in WAIT.findall(one.ptx)]
        # In both loops the loads of the next tile stay in flight; behind them nothing does.
        assert sum(pending > 0 for pending in waits) >= 2, one.name


@pytest.mark.parametrize(("name", "products"), [("forward", 2), ("dq", 3), ("dkdv", 4)])
def test_the_hot_loop_does_the_work_of_a_tile(name, products):
    """Both warpgroups go through it: FLOP of all products, one exponential for each score."""
    one, tile_ = built("sm_90", *ALL)[name], tile("sm_90", name, 2, 128)
    (loop,) = plain(one.loops)
    assert one.warps == tile_.warps and len(hot(one.loops)) == 2
    scores = tile_.q * tile_.k
    assert loop.flops * one.warps == 2 * products * scores * 128
    rows = 2 * 32 * one.warps if name == "forward" else 0  # how far two rows shrink, each thread
    assert loop.count("MUFU.EX2") * 32 * one.warps == scores + rows
    assert loop.count("LDGSTS") > 0 and not any(one.unit is None for one in loop.turn)
    edge = next(x for x in hot(one.loops) if x is not loop)
    # Beside tiles on the diagonal, which are not seen whole.
    assert edge.flops * one.warps == 2 * products * scores * 128 * tile_.edge // (
        tile_.q if name == "dkdv" else tile_.k
    )


def test_nothing_spills_at_the_other_widths_either(root):
    record = read(root / "book/measured/attention-code.cpu.json")
    for width in (64, 128, 256):
        for name, target in ((name, target) for name in STREAMS for target in TARGETS):
            assert record.result(f"{name} for {target} at width {width}", "spilled").value == 0
            assert record.result(f"{name} for {target} at width {width}", "registers").value <= 255


def test_warps_that_split_the_keys_exchange_what_warps_that_split_the_queries_do_not():
    ours = built("sm_80", "forward")["forward"]
    (theirs,) = compile_for(fa1.attention, "sm_80")
    assert theirs.spills <= SPILLED_FA1 and theirs.count("mma.sync") > 0
    assert theirs.count("STS") > ours.count("STS") and theirs.count("LDS") > ours.count("LDS")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("listed", [passes, fa1.passes, naive.passes])
def test_passes_are_listed_for_every_type_and_width(listed, target):
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for width in (16, 17, 64, 80, 128, 256):
            for one in listed(target, dtype=dtype, width=width, causal=False):
                assert {**one.signature, **one.constexprs}.keys() == set(one.function.arg_names)
                assert one.options["num_warps"] in (2, 4, 8, 16)
                assert one.constexprs.get("K", width) == one.constexprs.get("V", width) == width


def test_a_tile_is_at_least_what_a_tensor_core_takes_and_cuts_into_whole_edges():
    names = ALL | {"fa1", "naive"}
    for name, target in ((name, target) for name in names for target in (*TARGETS, SMALL)):
        for size, width in ((2, 16), (2, 64), (2, 256), (4, 16), (4, 128), (4, 256)):
            one = tile(target, name, size, width)
            assert isinstance(one, KernelTile) and all(n % 16 == 0 for n in one[:3])
            assert one.q >= 16 and one.warps in (2, 4, 8)
            if name in STREAMS:
                streams = one.q if name == "dkdv" else one.k
                assert streams % one.edge == 0 and one.edge >= 16
