"""The guard: what the compiler makes of every tuned kernel is what the committed records say.

Nothing is compiled for it as long as the compiler is given the same as for the record: each row
carries a number for its kernel's text, types, constants and options and for Triton's version, and
the same of these gives the same machine code. Where they differ, what differs is compiled and each
count compared. That a record tells the truth is checked on what other tests compile anyway
(test_attention_code.py, test_hopper_code.py), and here on two small kernels.

With another Triton than the record's every number differs. Then only what is compiled in those
tests is compared, and has to be no worse by more than half (`machine_code.OTHER`): compilers differ
by up to a third either way. What holds with any compiler, closed forms, is held there as well.
"""

from dataclasses import replace

import pytest
import triton

from weft.bench import machine_code
from weft.bench.machine_code import FACES, counted, differences, stale, told
from weft.bench.record import Measurement, Record, read
from weft.kernels import Compiled, hopper
from weft.kernels.code import digest, source
from weft.kernels.code.loops import hot
from weft.kernels.hopper.backward import BACKWARD_TILES
from weft.kernels.hopper.forward import CONSUMERS
from weft.plan.hopper import KERNEL_TILES, KERNEL_TILES_FP8
from weft.plan.hopper.floor import Turn, alone, ceiling, clocks

TOPICS = list(FACES)
SPILLED = {  # bytes of a thread, at all its registers
    "delta: flows, wide for sm_90 at width 256": 64,
    "sparse: dkdv for sm_90 at width 256": 8,
    "sparse: dkdv for sm_90 at width 256 in a window": 32,
    "sparse: dkdv for sm_90 at width 256 of a layout": 32,
}


@pytest.fixture(scope="module")
def records(root):
    return {topic: read(root / f"book/measured/{topic}-code.cpu.json") for topic in TOPICS}


@pytest.mark.parametrize("topic", TOPICS)
def test_no_kernel_has_become_worse_or_better_than_its_record(records, topic):
    record, (face, targets) = records[topic], FACES[topic]
    listed = {one.name: one for target in targets for one in face(target)}
    assert list(listed) == list(dict.fromkeys(one.name for one in record.results))
    if record.versions["triton"] != triton.__version__:
        return
    rows = []
    for target in targets:
        names = [name for name in stale(record, topic) if f" {target}" in name]
        for i in range(0, len(names), machine_code.AT_ONCE):
            for made in machine_code.built(topic, target, names[i : i + machine_code.AT_ONCE]):
                rows += differences(record, counted(made, listed[made.name]))
    assert not rows, "\n" + told(rows)


def test_what_the_smallest_kernels_are_compiled_to_is_in_the_record(records):
    for topic, name in (("decode", "merge for sm_90"), ("precision", "per_tensor for sm_90")):
        (made,) = machine_code.built(topic, "sm_90", [name])
        (one,) = (one for one in FACES[topic][0]("sm_90") if one.name == name)
        rows = differences(records[topic], counted(made, one))
        assert not rows, "\n" + told(rows)
        assert len(made.instructions) == sum(made._machine.values()) > 100
        assert not {one.name for one in made.instructions if one.unit is None}
        assert len(hot(made.loops)) == (topic == "decode")  # it merges pieces one by one


def test_nothing_that_is_tuned_spills(records):
    for topic, record in records.items():
        assert record.versions["ptxas"].count(".") == 2
        for one in record.results:
            allowed = SPILLED.get(f"{topic}: {one.name}", 0)
            assert one.who != "spilled" or one.value == allowed, one.name
            assert one.who != "registers" or 0 < one.value <= 255, one.name
            assert one.who != "ceiling" or 0 < one.value <= 1, one.name


def test_the_hot_loop_of_attention_does_the_work_of_a_tile(records):
    """Clocks of the tensor cores and of the exponential unit in closed form, by tile."""
    for width, tile in KERNEL_TILES.items():
        for mask in ("", " without a mask"):
            name = f"forward for sm_90 at width {width}{mask}"
            rows, scores = tile.rows, tile.rows * tile.keys
            record = records["hopper"]
            assert record.result(name, "clocks: tensor").value == 4 * scores * width / 4096
            # Beside the scores a thread takes two of its rows' shrinkage, as do three others.
            assert record.result(name, "clocks: exp").value == (scores + 4 * rows) / 16
            queries, keys = 2 * 64, BACKWARD_TILES[width].dq_keys
            name = f"dq for sm_90 at width {width}{mask}"
            assert record.result(name, "clocks: tensor").value == 6 * queries * keys * width / 4096
            assert record.result(name, "clocks: exp").value == queries * keys / 16
            eight = f"fp8 forward for sm_90 at width {width}{mask}"
            keys = KERNEL_TILES_FP8[width].keys
            assert record.result(eight, "clocks: tensor").value == 4 * 128 * keys * width / 8192


def test_a_floor_is_below_what_happens_without_overlap(records):
    for record in records.values():
        for name in {one.name for one in record.results if one.who == "ceiling"}:
            busy = [r.value for r in record.results if r.name == name and r.who[:6] == "clocks"]
            top, least = record.result(name, "ceiling").value, record.result(name, "alone").value
            tensor = record.result(name, "clocks: tensor").value
            assert top == pytest.approx(tensor / max(busy), abs=1e-4) and least <= top


# --- the guard itself -----------------------------------------------------------------------------


def toy(**counts):
    results = [Measurement.of("toy", who.replace("_", " "), "1", [n]) for who, n in counts.items()]
    made = Record.here("toy-code", "A toy", "toy", "weft bench machine_code", results)
    return replace(made, versions={"triton": triton.__version__})


def test_worse_and_better_are_told_apart_and_the_way_out_is_named():
    record = toy(registers=168.0, spilled=0.0, loop=435.0, ceiling=0.97, source=1.0)
    new = toy(registers=168.0, spilled=8.0, loop=400.0, ceiling=0.9, source=2.0).results
    rows = differences(record, new)
    assert [row[1:] for row in rows] == [
        ("spilled", 0.0, 8.0), ("loop", 435.0, 400.0), ("ceiling", 0.97, 0.9),
    ]  # fmt: skip
    lines = told(rows).splitlines()
    assert [line.split()[-1] for line in lines[1:-1]] == ["worse", "better", "worse"]
    assert lines[0].split() == ["kernel", "what", "was", "is"]
    assert "weft bench machine_code --out book/measured" in lines[-1]
    assert differences(record, record.results) == []


def test_another_compiler_may_be_worse_by_half_and_better_by_anything():
    record = toy(registers=168.0, spilled=0.0, loop=400.0, ceiling=0.9)
    other = replace(record, versions={"triton": "0.1"})
    near = toy(registers=250.0, spilled=32.0, loop=600.0, ceiling=0.8).results
    assert len(differences(record, near)) == 4 and differences(other, near) == []
    far = toy(registers=253.0, spilled=33.0, loop=601.0, ceiling=1.0).results
    assert [row[1] for row in differences(other, far)] == ["registers", "spilled", "loop"]
    assert differences(other, toy(loop=1.0, ceiling=1.0).results) == []


def test_a_source_is_all_that_the_compiler_is_given():
    one, *rest = hopper.passes("sm_90")
    assert source(one) == source(replace(one, name="another name")) == source(one)
    changed = [
        replace(one, signature=dict(one.signature) | {"T": "i64"}),
        replace(one, constexprs=dict(one.constexprs) | {"STAGES": 3}),
        replace(one, constexprs=dict(one.constexprs) | {"CONSUMER": CONSUMERS["pingpong"]}),
        replace(one, options={"num_warps": 8}),
        *rest,
    ]
    assert len({source(other) for other in (one, *changed)}) == 1 + len(changed)


def test_a_word_in_what_a_kernel_calls_makes_its_source_another(monkeypatch):
    one, delta, dq, _ = hopper.passes("sm_90")
    before = [source(x) for x in (one, delta, dq)]
    true = digest._text

    def changed(module, old, new):
        text = true(module).replace(old, new)
        assert text != true(module)
        monkeypatch.setattr(digest, "_text", lambda m: text if m == module else true(m))
        digest._module.cache_clear()
        return [source(x) != was for x, was in zip((one, delta, dq), before, strict=True)]

    tile = "weft.kernels.hopper.tile"
    softmax = "gl.exp2(b_s * scale - (b_ref - LIFT)[:, None])"
    try:
        # What the forward pass calls through two other modules, and nobody else does.
        assert changed(tile, softmax, f"2.0 * {softmax}") == [True, False, False]
        assert changed(tile, "o_k & 6", "o_k & 2") == [True, False, True]
        assert changed(tile, '"""What FlashAttention-3', '"""# What') == [False] * 3
        words, forward = "weft.kernels.gluon.words", "weft.kernels.hopper.forward"
        assert changed(words, "wait = hopper", "wait = 0 or hopper") == [True] * 3
        assert changed(forward, "import torch", "import torch, math") == [False] * 3
    finally:
        digest._module.cache_clear()


def test_what_is_new_changed_or_gone_is_stale(records):
    record = replace(records["decode"], results=fresh("decode"))
    assert stale(record, "decode") == []
    rows = [r for r in record.results if r.name != "merge for sm_80"]
    rows = [replace(r, name="old") if r.name == "merge for sm_90" else r for r in rows]
    found = stale(replace(record, results=tuple(rows)), "decode")
    assert found == ["merge for sm_80", "merge for sm_90", "old"]


def fresh(topic):
    face, targets = FACES[topic]
    listed = [one for target in targets for one in face(target)]
    return tuple(Measurement.of(one.name, "source", "1", [float(source(one))]) for one in listed)


LOOP = """
.L_1:
    /*0000*/ HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24 ;
    /*0010*/ MUFU.EX2 R1, R1 ;
    /*0020*/ F2FP.BF16.F32.PACK_AB R1, R1, R2 ;
    /*0030*/ LDS.128 R4, [R1] ;
    /*0040*/ UIADD3 UR4, UR4, 0x1, URZ ;
    /*0050*/ @!P0 BRA `(.L_1) ;
    /*0060*/ EXIT ;"""


def test_a_pass_is_counted_as_its_loop_says():
    one = replace(hopper.passes("sm_90")[0], name="toy for sm_90")
    made = Compiled(one.name, "", LOOP, 40, 0, 1024, warps=8)
    found = {result.who: result.value for result in counted(made, one)}
    flops = 2 * 64 * 64 * 16 / 4
    turn = Turn(8, 6, flops, exp=1, alu=1, shared=1, moved=512, factors=(64 + 64) * 32 / 4)
    assert found["matrix instructions"] == 1 and found["instructions"] == 7
    assert found["loop"] == 6 and found["source"] == source(one)
    for unit, busy in clocks(turn).items():
        assert found[f"clocks: {unit}"] == pytest.approx(busy, abs=1e-4)
    assert found["ceiling"] == round(ceiling(turn), 4) and found["alone"] == round(alone(turn), 4)
    older = replace(one, name="toy for sm_80")
    assert "loop" not in {r.who for r in counted(replace(made, name=older.name), older)}
