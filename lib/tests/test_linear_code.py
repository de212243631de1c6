"""What the compiler makes of the chunked kernels and of the scan, by the records.

That the record is true is for test_machine_code to say.
"""

import pytest
import torch

from weft.bench import machine_code
from weft.bench.record import read
from weft.kernels import linear
from weft.kernels.linear import gated
from weft.kernels.linear.tuned import TILES, ChunkTile, tile

SHARED = {"sm_80": 163, "sm_90": 227, "sm_100": 227}  # KiB that a block can have
WITHOUT = {"left"}  # the pass that only adds


@pytest.fixture(scope="module")
def record(root):
    return read(root / "book/measured/linear-code.cpu.json")


@pytest.fixture(scope="module")
def measured(root):
    return root / "book/measured"


def test_every_pass_is_on_tensor_cores_and_fits(record):
    for target in machine_code.TARGETS:
        for one in machine_code.linear(target):
            products = record.result(one.name, "matrix instructions").value
            assert (products > 0) == (one.name.partition(" ")[0] not in WITHOUT), one.name
            assert record.result(one.name, "spilled").value == 0, one.name
            assert record.result(one.name, "shared").value <= SHARED[target] * 1024, one.name


def test_the_delta_rule_is_on_tensor_cores_and_fits(measured):
    record = read(measured / "delta-code.cpu.json")
    for target in machine_code.TARGETS:
        for one in machine_code.delta(target):
            assert record.result(one.name, "matrix instructions").value > 0, one.name
            assert record.result(one.name, "shared").value <= SHARED[target] * 1024, one.name


def test_a_scan_stays_in_registers(measured):
    record = read(measured / "griffin-code.cpu.json")
    for target in machine_code.TARGETS:
        for one in machine_code.griffin(target):
            for what in ("matrix instructions", "spilled", "shared"):
                assert record.result(one.name, what).value == 0, (one.name, what)


def test_both_directions_are_the_same_kernel(record):
    for name, other in (("states", "dstates"), ("output", "dv"), ("output", "dq")):
        for width in machine_code.WIDTHS:
            both = [
                record.result(f"{one} for sm_90 at width {width}", "matrix instructions").value
                for one in (name, other)
            ]
            assert both[0] == both[1]


@pytest.mark.parametrize("target", machine_code.TARGETS)
def test_passes_are_listed_for_every_type_and_width(target):
    listed = {
        "none": lambda **kind: linear.passes(target, **kind),
        "head": lambda **kind: gated.passes(target, **kind),
        "channel": lambda **kind: gated.passes(target, channels=True, **kind),
    }
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for width, chunk in ((16, 64), (17, 5), (256, 128)):
            for name, found in listed.items():
                ones = found(dtype=dtype, width=width, chunk=chunk)
                assert len(ones) == {"none": 6, "head": 7, "channel": 6}[name]
                for one in ones:
                    assert {**one.signature, **one.constexprs}.keys() == set(one.function.arg_names)
                    assert one.constexprs["TILE_T"] == max(16, 1 << (chunk - 1).bit_length())


def test_a_tile_is_no_wider_than_the_head():
    names = [name for name in TILES if isinstance(name, str)]
    for target in (*machine_code.TARGETS, "small", "interpreter"):
        for name in names:
            one = tile(target, name, 2, 64, 16, 32)
            assert isinstance(one, ChunkTile) and one.k == 16 and one.v <= 32
            assert tile(target, name, 2, 128, 256, 256).warps in (4, 8)
