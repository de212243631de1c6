"""A GPU as arithmetic: against NVIDIA's own counts, simulations and brute force."""

import ast
import sys
from importlib import import_module
from inspect import signature
from itertools import pairwise, product
from math import gcd, inf

import pytest
import torch
import triton
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from weft.draw.gpu import queue_svg
from weft.kernels import compile_for
from weft.plan import gpu
from weft.plan.gpu import Needs
from weft.plan.hardware import CHIPS, Chip
from weft.plan.roofline import Work, vector_add
from weft.plan.shape import SHAPES

# --- residents ------------------------------------------------------------------------------------

# Programs on a multiprocessor by NVIDIA's cuda_occupancy.h of CUDA 13, compiled and called with the
# traits of each chip: (registers, warps, shared bytes) -> v100, a100-80, h100, b200.
COUNTED = {
    (16, 1, 0): (32, 32, 32, 32),
    (32, 4, 0): (16, 16, 16, 16),
    (33, 4, 0): (12, 12, 12, 12),
    (40, 5, 0): (9, 9, 9, 9),
    (64, 7, 8191): (4, 4, 4, 4),
    (65, 3, 100): (9, 9, 9, 9),
    (72, 12, 16384): (2, 2, 2, 2),
    (96, 8, 33000): (2, 2, 2, 2),
    (128, 4, 49152): (2, 3, 4, 4),
    (129, 5, 0): (2, 2, 2, 2),
    (168, 12, 0): (1, 1, 1, 1),
    (200, 8, 65536): (1, 1, 1, 1),
    (255, 8, 0): (1, 1, 1, 1),
    (255, 12, 0): (0, 0, 0, 0),
    (16, 4, 98304): (1, 1, 2, 2),
    (16, 2, 166912): (0, 1, 1, 1),
    (16, 1, 232448): (0, 0, 1, 1),
}


@pytest.mark.parametrize(("needs", "counted"), COUNTED.items(), ids=str)
def test_programs_are_as_many_as_nvidia_counts(needs, counted):
    found = [
        gpu.residents(chip, Needs(*needs)).programs for chip in ("v100", "a100-80", "h100", "b200")
    ]
    assert tuple(found) == counted


@given(
    chip=st.sampled_from(sorted(gpu.CAPACITIES)),
    registers=st.integers(1, 255),
    warps=st.integers(1, 32),
    shared=st.integers(0, 2**18),
)
def test_residents_fit_and_one_more_does_not(chip, registers, warps, shared):
    has, held = gpu.CAPACITIES[chip], gpu.residents(chip, Needs(registers, warps, shared))
    assert held.programs == held.limits[held.limit] == min(held.limits.values())
    assert held.warps == held.programs * warps <= has.warps
    assert held.warps * gpu.rounded(registers * 32, 256) <= has.registers
    assert held.programs * (shared + has.reserved) <= has.shared
    assert held.occupancy == held.warps / has.warps
    more = gpu.residents(chip, Needs(max(1, registers - 8), warps, shared))
    assert more.programs >= held.programs


@pytest.mark.parametrize("chip", gpu.CAPACITIES)
def test_cuda_cores_reach_the_data_sheets_rate_at_a_clock_that_the_chip_has(chip):
    on, each = CHIPS[chip], 2 * gpu.CAPACITIES[chip].cores  # a multiply-add is two FLOPs
    assert 1.3e9 < on.rate("fp32") / on.sms / each < 2.1e9


@pytest.mark.parametrize(
    ("chip", "needs", "said"),
    [
        ("h300", Needs(32), "chip is 'h300', must be one of v100"),
        ("h100", Needs(0), "registers is 0, must be a whole number of at least 1"),
        ("h100", Needs(32, 33), "warps is 33, must be at most 32"),
        ("h100", Needs(32, 4, -1), "shared is -1"),
    ],
)
def test_needs_that_nothing_has_are_refused(chip, needs, said):
    with pytest.raises(ValueError, match=said):
        gpu.residents(chip, needs)


def test_chips_have_what_they_are_known_for():
    assert set(gpu.CAPACITIES) == set(CHIPS)
    assert all(gpu.CAPACITIES[name].shared == CHIPS[name].shared for name in CHIPS)
    speeds = {name: round(gpu.clock(name) / 1e9, 2) for name in CHIPS}
    assert speeds["v100"] == 1.53 and speeds["a100-80"] == 1.41 and speeds["h100"] == 1.83
    with pytest.raises(ValueError, match="chip is 'x'"):
        gpu.clock("x")


# --- the program's kernels, compiled --------------------------------------------------------------

FACE = """
import triton
import triton.language as tl
from weft.kernels.code import Pass

{kernels}

def face(): ...


def passes(target):
    add = {{"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i32"}}
    softmax = {{"x": "*fp32:16", "out": "*fp32:16", "n": "i32"}}
    softmax |= {{"x_stride": "i32", "out_stride": "i32"}}
    listed = [Pass("add", add_kernel, add, {{"BLOCK": 1024}}, {{"num_warps": 4}})]
    for block, warps in {sizes}:
        options = {{"num_warps": warps}}
        constants = {{"BLOCK": block}}
        listed.append(Pass(f"{{block}} {{warps}}", softmax_kernel, softmax, constants, options))
    return tuple(listed)
"""


def test_the_programs_kernels_need_what_the_page_says(root, tmp_path, monkeypatch):
    """Registers are Triton 3.7's; other releases may differ in them, not in what spills."""
    text = (root / "book/programs/gpu.py").read_text(encoding="utf-8")
    kernels = [
        "@triton.jit\n" + ast.get_source_segment(text, node)
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]
    face = FACE.format(kernels="\n\n".join(kernels), sizes=list(gpu.SOFTMAX))
    (tmp_path / "gpu_face.py").write_text(face, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        made = compile_for(import_module("gpu_face").face, "sm_90")
    finally:
        sys.modules.pop("gpu_face", None)
    found = {
        one.name: Needs(one.registers, one.warps, one.shared_bytes, one.spills) for one in made
    }
    said = {"add": gpu.ADD} | {f"{block} {warps}": n for (block, warps), n in gpu.SOFTMAX.items()}
    if triton.__version__.startswith("3.7"):
        assert found == said
    assert {name for name, one in found.items() if one.spilled} == {"32768 4"}


# --- latency --------------------------------------------------------------------------------------


def test_littles_law_fills_a_bandwidth_and_no_more():
    chip = CHIPS["h100"]
    under_way = gpu.in_flight(chip.bandwidth, 5e-7)
    assert gpu.reached(chip, under_way, 5e-7) == pytest.approx(chip.bandwidth)
    assert gpu.reached(chip, under_way / 4, 5e-7) == pytest.approx(chip.bandwidth / 4)
    assert gpu.reached(chip, 9 * under_way, 5e-7) == chip.bandwidth
    assert gpu.needed("h100") * chip.sms == pytest.approx(
        chip.bandwidth * gpu.GLOBAL / gpu.clock("h100")
    )
    for wrong, said in (((-1, 1e-6), "nbytes is -1"), ((1, 0), "latency is 0")):
        with pytest.raises(ValueError, match=said):
            gpu.reached(chip, *wrong)


@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 20))
def test_a_scheduler_in_the_long_run_is_as_busy_as_the_formula_says(warps, work, wait):
    turns = 40
    played = gpu.schedule(warps, work, wait, turns)
    assert len(played) == warps * turns
    for one, two in pairwise(played):
        assert one.end <= two.start
    for warp in range(warps):
        mine = [busy for busy in played if busy.warp == warp]
        gaps = [b.start - a.end for a, b in pairwise(mine)]
        assert min(gaps, default=wait) >= wait
    end = played[-1].end
    busy = warps * turns * work / end
    assert gpu.busy_share(warps, work, wait) == pytest.approx(busy, rel=1 / turns)
    assert gpu.busy_share(gpu.warps_needed(work, wait), work, wait) == 1
    fewer = gpu.warps_needed(work, wait) - 1
    assert fewer == 0 or gpu.busy_share(fewer, work, wait) < 1


# --- addresses ------------------------------------------------------------------------------------


@given(st.integers(1, 500), st.integers(1, 64))
def test_programs_share_out_the_numbers_once_each(n, block):
    grid = gpu.programs(n, block)
    parts = [gpu.part(n, block, program) for program in range(grid)]
    assert [i for part in parts for i in part.inside] == list(range(n))
    assert all(len(part.inside) + part.masked == block for part in parts)
    assert all(part.masked == 0 for part in parts[:-1])
    with pytest.raises(ValueError, match="program is"):
        gpu.part(n, block, grid)


def test_blocks_rows_and_offsets():
    assert [gpu.power_of_two(n) for n in (1, 2, 3, 5, 1000, 1025)] == [1, 2, 4, 8, 1024, 2048]
    assert gpu.row(2, columns=5, stride=7) == range(14, 19)
    assert not gpu.overflows(2**31 - 1) and gpu.overflows(2**31)


@given(st.integers(0, 40), st.sampled_from([1, 2, 4, 8, 16]))
def test_whole_sectors_are_fetched(stride, size):
    addresses = gpu.strided(stride, size)
    touched = {byte // 32 for at in addresses for byte in range(at, at + size)}
    assert gpu.fetched(addresses, size) == 32 * len(touched)


@pytest.mark.parametrize("stride", range(1, 70))
def test_a_stride_conflicts_by_its_common_divisor_with_the_banks(stride):
    assert gpu.bank_turns(gpu.strided(stride, 4)) == gcd(stride, 32)


def test_one_word_for_all_takes_one_turn():
    assert gpu.bank_turns([64] * 32) == 1


# --- walls and waves ------------------------------------------------------------------------------


def test_the_longest_of_three_is_the_wall():
    chip = Chip("any", {"fp32": 1e12}, 1e11)
    made = gpu.walls(Work(flops=3e6, bytes=1e5), chip, "fp32", launch=2e-6)
    assert made == (2e-6, 1e-6, 3e-6)
    assert (made.seconds, made.wall) == (3e-6, "compute")
    assert gpu.walls(vector_add(10, 4), chip, "fp32").wall == "launch"
    assert gpu.walls(vector_add(10**8, 4), chip, "fp32").wall == "memory"
    at = gpu.least_bytes(chip, 2e-6)
    assert gpu.walls(Work(0, at), chip, "fp32", 2e-6).memory == pytest.approx(2e-6)
    assert gpu.walls(Work(gpu.least_flops(chip, "fp32", 2e-6), 0), chip, "fp32").compute == 2e-6
    with pytest.raises(ValueError, match="launch is -1"):
        gpu.walls(Work(1, 1), chip, "fp32", launch=-1)


@pytest.mark.parametrize("chip", gpu.CAPACITIES)
@pytest.mark.parametrize("exponent", range(3, 9))
def test_the_arithmetic_of_an_addition_never_counts(chip, exponent):
    made = gpu.walls(vector_add(10**exponent, 4), CHIPS[chip], "fp32", 2e-6)
    assert made.compute < made.memory


def test_the_pictures_device_waits_from_the_fifth_kernel_on():
    given = signature(queue_svg).parameters
    runs = gpu.queue(given["seconds"].default, given["launch"].default)
    waited = [b.start > a.end for a, b in pairwise(runs)]
    assert waited == [False] * 3 + [True] * 3


@given(st.lists(st.integers(0, 20), max_size=12), st.integers(0, 9))
def test_a_queue_ends_when_its_closed_form_says(seconds, launch):
    runs = gpu.queue(seconds, launch)
    assert gpu.finish(seconds, launch) == (runs[-1].end if runs else 0)
    assert all(run.start >= run.launched for run in runs)
    assert all(a.end <= b.start for a, b in pairwise(runs))
    least = max(sum(seconds), launch * len(seconds))
    assert least <= gpu.finish(seconds, launch) <= sum(seconds) + launch * len(seconds)


@pytest.mark.parametrize("wrong", [([1.0], -1.0), ([-1.0], 1.0)])
def test_a_queue_of_less_than_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="must be a finite number of at least 0"):
        gpu.queue(*wrong)


@pytest.mark.parametrize(("programs", "slots"), [*product((1, 5, 131, 132, 133, 300), (1, 7, 132))])
def test_waves_are_those_of_programs_that_start_as_slots_get_free(programs, slots):
    made = gpu.waves(programs, slots)
    placed = [gpu.slot_of(i, slots) for i in range(programs)]
    assert len(set(placed)) == programs
    assert made.number == 1 + max(wave for wave, _ in placed)
    assert made.full * slots + made.tail == programs
    assert made.used == pytest.approx(programs / (made.number * slots))


def test_a_token_is_bound_by_its_weights_or_by_its_launches():
    shape = SHAPES["llama2-7b"]
    for name in ("h100", "b200"):
        made = gpu.token_time(shape, CHIPS[name], 1024)
        assert max(made.work, made.launches) <= made.end <= made.work + made.launches
        read = 2 * shape.active_params - 2 * shape.vocab * shape.width  # no table of embeddings
        cache = 4 * 1024 * shape.layers * shape.groups * shape.key_width
        assert made.work * CHIPS[name].bandwidth == pytest.approx(read + cache, rel=1e-3)
        kernels = shape.layers * (7 + 1 + gpu.SMALL) + 1  # matmuls, attention, small ones
        assert made.launches == pytest.approx(kernels * gpu.LAUNCH)
    assert gpu.token_time(shape, CHIPS["h100"], 1024, launch=0).end == pytest.approx(
        gpu.token_time(shape, CHIPS["h100"], 1024).work
    )
    with pytest.raises(ValueError, match="launch is inf"):
        gpu.token_time(shape, CHIPS["b200"], 1024, launch=inf)


@pytest.mark.parametrize("name", ["h100", "b200"])
@pytest.mark.parametrize("remedy", [{}, {"small": 4}, {"launch": 1e-6}], ids=str)
def test_a_token_takes_little_longer_than_the_longer_of_work_and_launches(name, remedy):
    made = gpu.token_time(SHAPES["llama2-7b"], CHIPS[name], 1024, **remedy)
    assert 1 < made.end / max(made.work, made.launches) < 1.03


class Launches(TorchDispatchMode):
    """Counts the operators that start a kernel: all but views."""

    def __init__(self):
        super().__init__()
        self.matmuls = self.small = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        matmul = func is torch.ops.aten.mm.default
        self.matmuls += matmul
        self.small += not (matmul or func.is_view or "view" in str(func))
        return func(*args, **(kwargs or {}))


def test_a_layer_in_plain_torch_launches_as_many_kernels_as_the_plan_says():
    """A Llama layer as Hugging Face writes it, for one token; its attention apart."""
    width, k_cache, v_cache = 8, torch.zeros(4, 8), torch.zeros(4, 8)
    weights = {name: torch.ones(width, width) for name in ("q", "k", "v", "o", "gate", "up")}
    scale, cos, sin, at = *(torch.ones(width) for _ in range(3)), torch.tensor([2])

    def norm(x):
        x32 = x.to(torch.float32)
        x32 = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + 1e-6)
        return scale * x32.to(x.dtype)

    def rotated(x):
        left, right = x[..., : width // 2], x[..., width // 2 :]
        return x * cos + torch.cat((-right, left), -1) * sin

    scale, cos, sin = scale.bfloat16(), cos.bfloat16(), sin.bfloat16()
    weights = {name: weight.bfloat16() for name, weight in weights.items()}
    k_cache, v_cache, x = k_cache.bfloat16(), v_cache.bfloat16(), torch.ones(1, width).bfloat16()
    with Launches() as seen:
        y = norm(x)
        q, k, v = rotated(y @ weights["q"]), rotated(y @ weights["k"]), y @ weights["v"]
        k_cache.index_copy_(0, at, k)
        v_cache.index_copy_(0, at, v)
        x = x + q @ weights["o"]  # attention would be between
        y = norm(x)
        y = torch.nn.functional.silu(y @ weights["gate"]) * (y @ weights["up"])
        x = x + y @ weights["up"]  # down
    assert (seen.matmuls, seen.small) == (7, gpu.SMALL)


# --- the recipe -----------------------------------------------------------------------------------


def test_the_recipe_of_the_page_runs(root, tmp_path, monkeypatch):
    """On a CPU the clock is a clock, no kernel is seen, and what cannot be recorded is called."""
    page = (root / "book/gpu.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("```{code-block} python\n:name: recipe-gpu\n")
    recipe, _, _ = rest.partition("```")
    names = {}
    exec(compile(recipe, "recipe", "exec"), names)
    calls = []

    def run(x):
        calls.append(x)
        return x + 1

    assert 0 < names["timed"](run, torch.zeros(3), repeats=4) < 1
    assert len(calls) == 7
    monkeypatch.chdir(tmp_path)
    assert names["on_device"](run, torch.zeros(3)) == 0
    assert len(calls) == 8 and "traceEvents" in (tmp_path / "trace.json").read_text()
    again = names["graphed"](run, torch.ones(3))
    assert torch.equal(again(), torch.full((3,), 2.0))
