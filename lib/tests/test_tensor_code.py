"""What the compiler makes of the fused layers: whole vectors, few instructions, enough registers.

Apart from the kernels' tests, which make tiles small: what is compiled is what a GPU is given.
"""

import torch

from weft.bench.machine_code import FACES
from weft.bench.record import read
from weft.kernels import compile_for, tensor
from weft.kernels.tensor import norm
from weft.kernels.tensor.rows import SOME


def test_whole_vectors_are_moved():
    """16 bytes at a time, but for single numbers; that nothing spills, test_machine_code holds."""
    alone = {"part": 2, "part dx": 3}  # a target and its score; a target, the lse and the slope
    for face in (tensor.swiglu, tensor.vocabulary_part):
        for one in compile_for(face, "sm_90"):
            loads = [x.name for x in one.instructions if x.name.startswith("LDG")]
            single = [name for name in loads if not name.endswith(".128")]
            assert len(single) == alone.get(one.name.partition(" of")[0], 0), (one.name, loads)
            assert one.count("LDG.E.128") and one.count("STG") > 0


def test_no_warp_waits_within_a_row_and_an_exponential_is_one_instruction():
    """A turn of the loop over a row: 32 scores of a thread, in 4 lanes that may each shrink."""
    (part,) = (one for one in compile_for(tensor.vocabulary_part, "sm_90") if one.name == "part")
    (turn,) = (one for one in part.loops if one.count("LDG") == 4)
    assert turn.count("MUFU") == 32 + 4 and turn.count("FSETP") == 0  # no denormals looked for
    assert turn.count("BAR") == turn.count("SHFL") == 0
    assert len(turn.turn) < 8 * 32


def test_as_many_programs_are_launched_as_find_registers(root):
    record = read(root / "book/measured/tensor-code.cpu.json")
    for target in FACES["tensor"][1]:
        for width in (4096, norm.WIDEST // 2):
            x = torch.empty(1, width, dtype=torch.bfloat16)
            warps = norm.row_sizes(x, backward=True)["num_warps"]
            for kind in ("rms_norm", "layer_norm"):
                programs = norm.programs_at_once(x, kind == "layer_norm") // SOME
                registers = record.result(f"{kind} of {width} dx for {target}", "registers").value
                assert programs * warps * 32 * 8 * -(-registers // 8) <= 2**16
