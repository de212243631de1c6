"""The loops of machine code, on listings by hand; test_hopper_code.py has real ones."""

import pytest

from weft.kernels.code.loops import UNITS, Instruction, hot, instructions, loops, plain


def listing(text):
    """A listing from one line each: a label with a colon, or an instruction."""
    lines, at = [], 0
    for line in text.strip().splitlines():
        line = line.strip()
        lines.append(line if line.endswith(":") else f"        /*{at:04x}*/   {line} ;")
        at += 0 if line.endswith(":") else 16
    return "\n".join(lines)


def names(found):
    return [one.name for one in found]


NEST = listing("""
    S2R R0, SR_TID.X
    .L_0:
    IADD3 R1, R1, R2, RZ
    .L_1:
    HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT
    @P1 FMUL R1, R1, R1
    @!P0 BRA `(.L_1)
    .L_2:
    QGMMA.64x64x32.F32.E4M3.E4M3 R24, R152, gdesc[UR8], R24, gsb0
    @!P0 BRA `(.L_2)
    FADD R1, R1, R2
    @!P2 BRA `(.L_0)
    EXIT
    .L_9:
    BRA `(.L_9)
""")


def test_loops_nest_and_own_what_is_not_in_an_inner_one():
    outer, first, second = loops(NEST)
    assert [one.head for one in (outer, first, second)] == [".L_0", ".L_1", ".L_2"]
    assert (outer.depth, first.within, second.within) == (0, (".L_0",), (".L_0",))
    assert names(outer.own) == ["IADD3", "FADD", "BRA"]
    assert names(first.own)[1:] == ["FMUL", "BRA"] and first.own[1].guard == "P1"
    assert len(outer.turn) == len(outer.own) + len(first.own) + len(second.own)
    assert first.count("HGMMA") == first.count("HGMMA.64x128x16") == 1
    assert first.count("HGMMA.64x1") == 0


def test_what_nothing_reaches_is_no_loop():
    """A listing ends with a branch to itself, behind the last EXIT."""
    assert ".L_9" not in [one.head for one in loops(NEST)]
    assert loops("") == () and hot(()) == plain(()) == ()


def test_the_hot_loops_are_the_innermost_that_multiply_and_one_of_each_role_is_plain():
    found = loops(NEST)
    assert [one.head for one in hot(found)] == [".L_1", ".L_2"]
    assert [one.head for one in plain(found)] == [".L_2"]  # as much FLOP in fewer instructions
    first = NEST.partition(".L_9:")[0].replace("EXIT ;", "NOP ;")  # and then goes on
    both = loops(first + NEST.replace(".L_", ".M_"))
    assert [one.head for one in plain(both)] == [".L_2", ".M_2"]


WAIT = listing("""
    .L_0:
    SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR6+0x8], R12
    @!P1 BRA `(.L_1)
    .L_5:
    @P3 BRA `(.L_2)
    FMUL R1, R1, R1
    FMUL R2, R2, R2
    .L_2:
    FADD R1, R1, R2
    @P2 BRA `(.L_0)
    EXIT
    .L_1:
    SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR6+0x8], R12
    @!P1 BRA `(.L_1)
    BRA `(.L_5)
""")


def test_a_wait_that_is_written_elsewhere_belongs_to_its_loop_and_is_not_the_hot_one():
    body, wait = loops(WAIT)
    assert wait.waits and not body.waits and wait.within == (".L_0",)
    assert hot((body, wait)) == (body,) == plain((body, wait))
    assert len(body.own) == 2 + 1 + 2 + 2 + 1  # the jump back included
    assert names(body.turn) == [names(body.own)[0], "BRA", "BRA", "FADD", "BRA"]  # none fails


def test_the_way_round_that_multiplies_is_taken_though_it_is_longer():
    text = WAIT.replace("FMUL R2, R2, R2", "HMMA.16816.F32.BF16 R4, R8, R12, R4")
    body = loops(text)[0]
    assert body.flops == 2 * 16 * 8 * 16 and body.count("FMUL") == 1


def test_branches_of_all_kinds_lead_where_they_should():
    table = """(*"BRANCH_TARGETS .L_1,.L_2"*)"""
    text = listing(f"""
        .L_0:
        BRX R4 -0x1b0 {table}
        .L_1:
        FADD R1, R1, R2
        BRA.U UP0, `(.L_0)
        @P0 EXIT
        .L_2:
        FMUL R1, R1, R2
        BRA `(.L_0)
        .L_3:
        BRA `(.L_3)
    """)
    (one,) = loops(text)
    assert one.head == ".L_0" and {"FADD", "FMUL"} <= set(names(one.own))
    assert names(one.turn) == ["BRX", "FADD", "BRA.U"] or names(one.turn)[1:] == ["FMUL", "BRA"]


def test_guards_and_the_uniform_datapath_are_seen():
    text = listing("""
        @!UP0 UIADD3 UR4, UR4, 0x1, URZ
        @P0 R2UR UR4, R1
        @!P6 LDGSTS.E.BYPASS.128 [R23+0x800], desc[UR46][R8.64], P4
        WARPGROUP.DEPBAR.LE gsb0, 0x0
    """)
    a, b, c, d = instructions(text)
    assert [one.guard for one in (a, b, c, d)] == ["!UP0", "P0", "!P6", ""]
    assert a.uniform and b.uniform and not c.uniform and not d.uniform
    assert [one.unit for one in (a, b, c, d)] == [""] * 4
    assert Instruction("NOVEL.X").unit is None


@pytest.mark.parametrize(
    ("name", "operands", "flops", "factors"),
    [
        ("HGMMA.64x128x16.F32.BF16", "R24, gdesc[UR8], RZ, !UPT", 262144, (128 + 64) * 32),
        ("HGMMA.64x128x16.F32.BF16", "R88, R180, gdesc[UR8].tnspB, R88", 262144, 128 * 32),
        ("HGMMA.64x8x16.F32.BF16", "R24, gdesc[UR8], R24, gsb0", 16384, (8 + 64) * 32),
        ("QGMMA.64x64x32.F32.E4M3.E4M3", "R24, R152, gdesc[UR8], R24", 262144, 64 * 32),
        ("HMMA.16816.F32.BF16", "R4, R8, R12, R4", 4 * 4096, 0),
        ("HMMA.1688.F32.TF32", "R4, R8, R12, R4", 4 * 2048, 0),
        ("FFMA", "R4, R8, R12, R4", 0, 0),
    ],
)
def test_a_product_has_the_flop_and_reads_the_bytes_that_its_name_says(
    name, operands, flops, factors
):
    one = Instruction(name, operands)
    assert (4 * one.flops, 4 * one.factors) == (flops, factors)


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("LDS", 128), ("LDS.64", 256), ("LDS.128", 512), ("STS.U16", 64), ("SHFL.BFLY", 128),
        ("LDSM.16.M88.4", 512), ("LDSM.16.MT88.2", 256), ("STSM.16.M88", 128), ("LDG.E.128", 0),
    ],
)  # fmt: skip
def test_what_a_warp_moves_through_shared_memory(name, moved):
    assert Instruction(name).moved == moved


def test_no_instruction_has_two_units():
    roots = [root for listed in UNITS.values() for root in listed.split()]
    assert len(roots) == len(set(roots))
