"""What the compiler makes of the experts' kernels, by the record, and of Hopper's two by hand."""

from dataclasses import replace

import pytest
from test_hopper_arrivals import unguarded

from weft.bench import machine_code
from weft.bench.record import read
from weft.kernels import compile_for
from weft.kernels.code.loops import hot
from weft.kernels.experts import hopper
from weft.kernels.experts.hopper.launch import DEEP, ROWS

SHARED = {"sm_80": 163, "sm_90": 227, "sm_100": 227}  # KiB that a block can have


@pytest.fixture(scope="module")
def record(root):
    return read(root / "book/measured/experts-code.cpu.json")


@pytest.fixture(scope="module")
def built():
    """One of Hopper's that gathers and one that does not, compiled in one process."""
    return {one.name: one for one in compile_for(hopper.mlp, "sm_90", only=("up", "down"))}


def test_every_pass_is_on_tensor_cores_and_fits(record):
    for target in machine_code.TARGETS:
        for one in machine_code.experts(target):
            products = record.result(one.name, "matrix instructions").value
            adds = any(word in one.name for word in ("table", "combine"))
            assert (products == 0) == adds, one.name
            assert record.result(one.name, "spilled").value == 0, one.name
            assert record.result(one.name, "shared").value <= SHARED[target] * 1024, one.name


def test_hoppers_keep_the_tensor_cores_busier_than_tritons(record):
    for name in ("up", "down", "down dx", "up dx"):
        ours = record.result(f"hopper {name} for sm_90", "ceiling").value
        assert ours == 1 and record.result(f"{name} for sm_90", "ceiling").value <= ours


def test_hoppers_are_as_the_record_says(built, record):
    passes = {one.name: one for one in hopper.passes("sm_90")}
    rows = []
    for name, one in built.items():
        named = replace(one, name=f"hopper {name} for sm_90")
        rows += machine_code.differences(record, machine_code.counted(named, passes[name]))
    assert not rows, "\n" + machine_code.told(rows)


def test_a_turn_is_one_tile_of_products_and_hardly_anything_else(built):
    for one in built.values():
        loops = [loop for loop in hot(one.loops) if loop.flops]
        assert len(loops) == 2  # a loop of its own for each warpgroup
        for loop in loops:
            assert 2 * 4 * loop.flops == 2 * ROWS * 256 * DEEP
            assert loop.count("HGMMA.64x256x16") == 4 and len(loop.turn) < 64
            assert loop.count("WARPGROUP.DEPBAR") == 1
        waits = [line for line in one.ptx.splitlines() if "wgmma.wait_group" in line]
        assert {line.split()[-1] for line in waits} == {"0;", "1;"}


def test_rows_come_by_tma_or_sixteen_bytes_to_a_thread(built):
    up, down = built["up"], built["down"]
    assert up.count("LDGSTS") == up.count("LDGSTS.E.BYPASS.128") == ROWS * DEEP * 2 // 128 // 16
    assert down.count("LDGSTS") == 0 and down.count("UTMALDG") > up.count("UTMALDG") > 0
    assert up.count("UTMASTG") > 0 and down.count("UTMASTG") == 0  # scattered rows


def test_warps_meet_before_each_arrival(built):
    for one in built.values():
        assert unguarded(one.ptx) == [], one.name


def test_another_target_is_refused():
    with pytest.raises(ValueError, match="target is 'sm_80', must be 'sm_90'"):
        compile_for(hopper.grouped_matmul, "sm_80")
