"""What the compiler makes of FlashAttention-3: Hopper's own instructions, and nothing spilled."""

import sys

import pytest

from weft.bench import machine_code
from weft.bench.record import read
from weft.kernels import compile_for, hopper
from weft.kernels.code.loops import hot, plain
from weft.kernels.hopper import fp8

SHARED = 227 * 1024  # bytes that a block of an H100 may have
VERSIONS = {
    "simple": hopper.simple,
    "specialized": hopper.specialized,
    "pingpong": hopper.pingpong,
    "overlapped": hopper.attention,
    "fp8": fp8.attention,
}
KIND = " for sm_90 at width 128"


@pytest.fixture(scope="module")
def built():
    """Every pass at width 128, compiled once, in a single process: its name -> what it became."""
    passes = {one.name: one for one in machine_code.hopper("sm_90") if one.name.endswith(KIND)}
    found = {one.name: one for one in compile_for(machine_code.hopper, "sm_90", only=tuple(passes))}
    assert found.keys() == passes.keys()
    return {name.removesuffix(KIND): one for name, one in found.items()}


def test_what_is_compiled_is_what_the_record_says(built, root):
    passes = {one.name: one for one in machine_code.hopper("sm_90")}
    record = read(root / "book/measured/hopper-code.cpu.json")
    rows = []
    for one in built.values():
        rows += machine_code.differences(record, machine_code.counted(one, passes[one.name]))
    assert not rows, "\n" + machine_code.told(rows)


def test_every_instruction_of_a_loop_is_known(built):
    for name, one in built.items():
        unknown = {i.name for loop in one.loops for i in loop.own if i.unit is None}
        assert not unknown, name


def test_the_loops_of_the_warpgroups_are_found_and_do_a_tile_each(built):
    for version in ("forward", "specialized forward", "pingpong forward", "fp8 forward"):
        one = built[version]
        loops = plain(one.loops)
        assert len(loops) == 2  # a loop of its own for each warpgroup
        for loop in loops:
            assert 4 * loop.flops == 4 * 64 * 128 * 128, version
            assert loop.count("MUFU.EX2") * 128 == 64 * 128 + 2 * 128
            assert loop.count("HGMMA") + loop.count("QGMMA") == (8 if "fp8" in version else 16)
            # Weights are rounded two to an instruction; in eight bits it takes as many again.
            assert loop.count("F2FP") * 128 * 2 == 64 * 128
    (loop,) = plain(built["simple forward"].loops)  # both warpgroups go through the same
    assert 4 * loop.flops == 4 * 64 * 128 * 128 and built["simple forward"].warps == 8


def test_the_plain_loop_hides_nothing_and_the_one_at_an_edge_does(built):
    """A hidden score is a comparison and a selection."""
    for name in ("forward", "dq", "fp8 forward"):
        loops = hot(built[name].loops)
        plain_ones = plain(built[name].loops)
        assert len(loops) == 4 and len(plain_ones) == 2
        for loop in loops:
            masked = loop not in plain_ones
            assert (loop.count("FSEL") >= 64) == (loop.count("ISETP") >= 32) == masked, name
    for loop in hot(built["dkdv"].loops):  # one loop, and a branch around the mask
        assert loop.count("FSEL") < 32 <= sum(one.name.startswith("FSEL") for one in loop.own)


def test_what_waits_loads_or_comes_once_is_not_hot(built):
    for name, one in built.items():
        assert not any(loop.waits for loop in hot(one.loops)), name
        copies = [loop for loop in one.loops if loop.count("UTMALDG") and not loop.flops]
        assert not set(copies) & set(hot(one.loops)), name


def test_the_face_brings_its_backward_and_versions_bring_what_they_differ_in():
    for version, face in VERSIONS.items():
        listed = getattr(face, "passes", None) or sys.modules[face.__module__].passes
        backward = ["delta", "dq", "dkdv"] if version == "overlapped" else []
        assert [one.name for one in listed("sm_90")] == ["forward", *backward]


def test_nothing_spills_and_everything_fits(built):
    for name, one in built.items():
        assert one.spills == 0 and one.count("LDL") == one.count("STL") == 0, name
        assert 0 < one.shared_bytes <= SHARED, name


def test_tensor_cores_and_bulk_copies_are_where_they_should_be(built):
    for name, one in built.items():
        eight, multiplies = name.startswith("fp8"), not name.endswith("delta")
        assert (one.count("HGMMA") > 0) == (multiplies and not eight), name
        assert (one.count("QGMMA") > 0) == eight, name
        assert one.count("HMMA") == one.count("QMMA") == 0, name  # of older chips
        assert one.count("UTMALDG") > 0 and one.count("cp.async.bulk") > 0, name
        assert (one.count("UTMASTG") > 0) == multiplies, name
        assert one.count("LDGSTS") == 0, name


def test_registers_change_hands_where_warps_are_specialized(built):
    for name, one in built.items():
        alike = name.startswith("simple") or name.endswith("delta")
        assert (one.count("USETMAXREG") > 0) == (not alike), name
        if alike:
            assert one.registers <= 255, name
        else:
            # Four warps and four, and four of which one loads: 168 each is all that there is.
            assert one.registers == 168, name
            assert {"240", "24"} <= set(_registers(one.ptx)), name


def _registers(ptx):
    return [line.split()[-1].strip(";") for line in ptx.splitlines() if "setmaxnreg" in line]


def test_products_run_while_exponentials_are_computed(built):
    """A wait right behind each product is what the compiler falls back to if it has to."""
    for version in ("overlapped", "fp8"):
        one = built[forward(version)]
        products = one.count("HGMMA") + one.count("QGMMA")
        assert 0 < one.count("WARPGROUP.DEPBAR") <= products / 3


def test_only_the_last_version_leaves_a_product_under_way_during_a_softmax(built):
    """It waits until at most one product is left, takes the softmax, and waits for that one."""
    waits = {version: _waits(built[forward(version)].ptx) for version in VERSIONS}
    assert waits["overlapped"] >= {"0", "1"} and waits["fp8"] >= {"0", "1"}
    assert waits["simple"] == waits["specialized"] == waits["pingpong"] == {"0"}


def forward(version):
    return "forward" if version == "overlapped" else f"{version} forward"


def _waits(ptx):
    return {line.split()[-1].strip(";") for line in ptx.splitlines() if "wgmma.wait_group" in line}


@pytest.mark.parametrize("target", ["sm_80", "sm_100"])
def test_another_target_is_refused(target):
    for face in VERSIONS.values():
        with pytest.raises(ValueError, match=rf"target is '{target}', must be 'sm_90'"):
            compile_for(face, target)


@pytest.mark.parametrize(
    ("face", "wrong", "message"),
    [
        (hopper.attention, {"width": 96}, "width is 96, must be one of 64, 128, 256"),
        (hopper.pingpong, {"dtype": "fp32"}, "dtype is 'fp32', must be one of bf16, fp16"),
        (hopper.attention, {"version": "fa2"}, "version is 'fa2', must be one of simple, spec"),
        (fp8.attention, {"width": 0}, "width is 0, must be one of 64, 128, 256"),
    ],
)
def test_a_kind_that_there_is_not_is_refused(face, wrong, message):
    with pytest.raises(ValueError, match=message):
        compile_for(face, "sm_90", **wrong)


@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_passes_are_listed_for_every_width(width, causal):
    lists = [
        hopper.passes("sm_90", version, width, causal, dtype)
        for version in hopper.VERSIONS
        for dtype in ("fp16", "bf16")
    ]
    lists += [hopper.simple.passes("sm_90", width=width, causal=causal)]
    for listed in [*lists, fp8.passes("sm_90", width, causal)]:
        for one in listed:
            assert {**one.signature, **one.constexprs}.keys() == set(one.function.arg_names)
            assert one.constexprs.get("CAUSAL", causal) == causal
