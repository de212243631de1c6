"""The backward pass in one against float64, its barriers in any order, and its machine code."""

import random
import re
from itertools import groupby

import pytest
import torch
from test_hopper_kernels import (  # noqa: F401 - two of them are fixtures
    BRAIN,
    HALF,
    LARGE,
    MARGIN,
    Case,
    answers,
    good,
    no_worse_than_plain,
    nothing,
    on_a_cpu,
    only_hopper,
    rooms,
    sanitized,
    tensors,
    untouched,
)

from weft.kernels import compile_for, hopper
from weft.kernels.code.loops import hot
from weft.kernels.gluon import fence, gl, interpreter, jit, tma_add, tma_store_wait
from weft.kernels.gluon.interpreter import Fault
from weft.kernels.hopper import dqdkdv, launch

CASES = [  # T, S, H, G, K, causal, dtype, B
    Case(140, 200, 2, 1, 64, True, BRAIN),
    Case(1, 333, 2, 1, 64, False, HALF, 2),
    Case(130, 300, 2, 1, 128, True, HALF),
    Case(300, 77, 2, 2, 128, True, BRAIN),
    Case(63, 1, 1, 1, 128, False, HALF),
    Case(129, 129, 1, 1, 64, True, HALF, 3),
    Case(129, 300, 4, 2, 128, True, BRAIN),
    Case(191, 130, 2, 1, 128, False, BRAIN, 2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_gradients_are_those_of_attention(case):
    arguments = tensors(case)
    no_worse_than_plain(case, arguments, answers(hopper.fused, *arguments, case.causal))


@pytest.mark.parametrize("K", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_any_order_of_events_gives_what_two_passes_give(K, causal):
    """dK and dV to the last bit in every order; dQ but for the order of its sums."""
    case = Case(70, 150, 1, 1, K, causal, HALF)
    arguments = tensors(case)
    two = answers(hopper.attention, *arguments, causal)
    first = answers(hopper.fused, *arguments, causal)
    step = torch.finfo(HALF).eps
    for _ in range(5):
        one = answers(hopper.fused, *arguments, causal)
        for i, name in enumerate(("o", "lse", "dq", "dk", "dv")):
            assert torch.equal(one[i], first[i]) or name == "dq", name
            assert name in ("dq", "dk") or torch.equal(one[i], two[i]), name
            torch.testing.assert_close(one[i], two[i], rtol=4 * step, atol=step)


def test_keys_that_do_not_exist_leave_nothing_in_dq():
    """Where all scores are far below 0, their weights would be infinite."""
    q, k, v, do, dlse = tensors(Case(5, 70, 1, 1, 64, False, HALF))
    q, k = torch.full_like(q, 40.0), torch.full_like(k, -40.0)
    dq = answers(hopper.fused, q, k, v, do, dlse, False)[2]
    right = answers(hopper.attention, q, k, v, do, dlse, False)[2]
    assert dq.isfinite().all() and right.any()
    torch.testing.assert_close(dq, right, rtol=2e-3, atol=2e-3)


def test_rows_that_see_nothing_get_and_give_nothing():
    q, k, v, do, dlse = tensors(Case(150, 70, 2, 1, 64, True, HALF))
    _, _, dq, *rest = answers(hopper.fused, q, k, v, do, dlse, True)
    assert not dq[:, :80].any() and dq[:, 81:].all()
    q[:, :80] = 1e4  # no key knows of them
    again = answers(hopper.fused, q, k, v, do, dlse, True)
    assert all(torch.equal(a, b) for a, b in zip(rest, again[3:], strict=True))


@pytest.mark.parametrize("K", [64, 128])
def test_all_of_the_result_is_written_and_nothing_beside_it(K, rooms):  # noqa: F811
    arguments = tensors(Case(67, 70, 2, 1, K, True, HALF))
    got = answers(hopper.fused, *arguments, True)
    assert len(rooms) == 7 and untouched(rooms) and not any(x.isnan().any() for x in got)
    assert all(not room[MARGIN : MARGIN + n].isnan().any() for room, n in rooms)


def test_what_is_wrong_is_said_and_so_is_a_width_that_it_has_not():
    with pytest.raises(ValueError, match="scale is 0, must be a finite number above 0"):
        hopper.fused(**good(scale=0))
    wide = {name: torch.zeros(1, 3, 1, 256, dtype=HALF) for name in "qkv"}
    with pytest.raises(ValueError, match="q has width 256, must be one of 64, 128: attention"):
        hopper.fused(**wide)
    with pytest.raises(ValueError, match="width is 256, must be one of 64, 128"):
        compile_for(hopper.fused, "sm_90", width=256)


# --- the interpreter sees what goes wrong ---------------------------------------------------------


@pytest.mark.parametrize("K", [64, 128])
@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("fence", "no fence"),
        ("release", r"for phase . of keys\.(q|do)\.empty"),
        ("arrive", r"for phase . of (dq|keys\.made)"),
        ("wait_released", "while a product of|no fence|are not right"),
        ("ready", "before it has landed|are not right"),
        ("tma_store_wait", r"writes dq\.buf.* while a store|are under way"),
        ("tma_add", "are not right"),
        ("mask_tile", "are not right"),
    ],
)
def test_none_of_its_words_is_one_too_many(word, complaint, K, monkeypatch):
    case = Case(200, 150, 1, 1, K, True, HALF)
    arguments = tensors(case)
    monkeypatch.setattr(dqdkdv, word, SILENT.get(word, nothing))
    with pytest.raises((Fault, AssertionError)) as caught:
        for _ in range(4):
            ours = answers(hopper.fused, *arguments, True)
            try:
                no_worse_than_plain(case, arguments, ours)
            except AssertionError:
                raise AssertionError("the gradients are not right") from None
    assert re.search(complaint, str(caught.value))


@jit
def take(ring, count):
    """`ready`, without waiting."""
    return ring.buf.index(count % 2).reshape([ring.buf.shape[2], ring.buf.shape[4]])


@jit
def see_all(b_s, ahead, CAUSAL: gl.constexpr, LAYOUT: gl.constexpr):
    """`mask_tile`, masking none."""
    return b_s


SILENT = {"ready": take, "mask_tile": see_all}


class Unfair(random.Random):
    """Lets one group of warps move only once in a while, or if no other can."""

    slow = ""

    def choice(self, seq):
        others = [x for x in seq if getattr(x, "name", "") != self.slow]
        return super().choice(others if others and self.random() < 0.98 else seq)


@pytest.mark.parametrize("slow", ["warps 0", *(f"workers {i}" for i in range(1, 5))])
@pytest.mark.parametrize("K", [64, 128])
def test_it_is_right_however_slow_one_group_of_warps_is(slow, K, monkeypatch):
    monkeypatch.setattr(random, "Random", Unfair)
    monkeypatch.setattr(Unfair, "slow", slow)
    case = Case(200, 130, 1, 1, K, True, HALF)
    arguments = tensors(case)
    no_worse_than_plain(case, arguments, answers(hopper.fused, *arguments, True))


@pytest.mark.parametrize(
    ("slow", "function", "line"),
    [
        ("workers 1", "issue_dk_dq", "wait_released(keys.do, count)"),
        ("workers 1", "consumer", "wait_released(keys.q, last)"),
        ("warps 0", "send_dq", "wait(dq.full.index(W), count & 1)"),
        ("workers 3", "dk_dq_and_scores", "wait(dq.empty.index(W), (count & 1) ^ 1)"),
        ("workers 3", "consumer", "wait(shared.dq.empty.index(W), (last & 1) ^ 1)"),
        ("", "consumer", "wait(keys.loaded.index(0), 0)"),
    ],
)
def test_a_single_wait_that_is_left_out_is_found(slow, function, line, monkeypatch):
    """Each of the waits in the kernel's own text, if who is waited for is slow, or at random."""
    monkeypatch.setattr(random, "Random", Unfair)
    monkeypatch.setattr(Unfair, "slow", slow)
    kernel = getattr(dqdkdv, function)
    assert kernel.src.count(line) == 1
    names = dict(vars(dqdkdv))
    exec(kernel.src.replace(line, "pass"), names)
    monkeypatch.setattr(kernel, "fn", names[function])
    case = Case(300 if slow else 70, 130, 1, 1, 128, True, HALF)
    arguments = tensors(case)
    with pytest.raises((Fault, AssertionError)):
        for _ in range(20):
            no_worse_than_plain(case, arguments, answers(hopper.fused, *arguments, True))


@jit
def spread(x_desc, y_desc, FENCED: gl.constexpr):
    """Every block adds the same tile to the last rows of y, half of which are not there."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    buf = gl.allocate_shared_memory(y_desc.dtype, y_desc.block_type.shape, y_desc.layout)
    buf.store(gl.full([16, 32], 0.5, gl.float32, LAYOUT))
    if FENCED:
        fence()
    tma_add(y_desc, [x_desc, 0], buf)
    tma_store_wait(0)


def test_an_addition_adds_and_what_lies_outside_is_left_alone():
    y = torch.arange(24.0).view(24, 1).expand(24, 40).contiguous()
    right = y.clone()
    right[16:, :32] += 1.5
    desc = launch.described(y, 0, [16, 32])
    interpreter.run(spread, 3, (16, desc), seed=1, FENCED=True)
    assert torch.equal(y, right)
    with pytest.raises(Fault, match="no fence"):
        interpreter.run(spread, 1, (16, desc), FENCED=False)


# --- machine code ---------------------------------------------------------------------------------


def alone(target: str):
    """The kernel without what goes before it; the other width and no mask are in the record."""


alone.passes = lambda target: hopper.fused.passes(target)[2:]


@pytest.fixture(scope="module")
def built():
    (one,) = compile_for(alone, "sm_90")
    return one


def test_five_products_to_a_tile_and_nothing_spilled(built):
    assert built.spills == built.count("LDL") == built.count("STL") == 0
    assert built.shared_bytes <= 227 * 1024 and built.registers == 168
    loops = hot(built.loops)
    assert len(loops) == 2  # one for each warpgroup
    for loop in loops:
        assert 4 * loop.flops == 5 * 2 * 64 * 64 * 128
        assert loop.count("MUFU.EX2") * 128 == 64 * 64
    # The first scores come before the loop, the last sums behind it.
    assert built.count("HGMMA") == 2 * sum(loop.count("HGMMA") for loop in loops)


KINDS = {"HGMMA": "product", "WARPGROUP.DEPBAR": "wait", "MUFU.EX2": "exponential"}
KINDS |= {"STS": "dQ", "STSM": "dS"}


def test_waits_stay_where_they_are_written(built):
    """Three products, dQ away under the last; dP under exponentials; dV under what makes dS."""
    for loop in hot(built.loops):
        found = [
            kind
            for one in loop.own
            for word, kind in KINDS.items()
            if f"{one.name}.".startswith(f"{word}.")
        ]
        assert [kind for kind, _ in groupby(found)] == [
            "product", "wait", "dQ", "product", "wait", "exponential", "product", "wait", "dS",
            "wait",
        ]  # fmt: skip


def test_the_copy_engine_adds(built):
    assert built.count("UTMAREDG") == 2  # by a warp for each warpgroup
    assert "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add" in built.ptx


def test_passes_are_listed_for_both_widths():
    for width in (64, 128):
        for causal in (False, True):
            listed = hopper.fused.passes("sm_90", width, causal, "fp16")
            assert [one.name for one in listed] == ["forward", "delta", "fused"]
            for one in listed:
                assert {**one.signature, **one.constexprs}.keys() == set(one.function.arg_names)


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
@only_hopper
@pytest.mark.parametrize("case", [case for case in LARGE if case.K < 256], ids=str)
def test_on_a_gpu_its_gradients_are_those_of_attention(case):
    arguments = tensors(case, "cuda")
    ours = answers(hopper.fused, *arguments, case.causal)
    no_worse_than_plain(case, arguments, ours)
    two = answers(hopper.attention, *arguments, case.causal)
    step = torch.finfo(case.dtype).eps
    for one, other in zip(ours[2:], two[2:], strict=True):
        assert (one - other).norm() <= step * other.norm()


@pytest.mark.gpu
@only_hopper
@pytest.mark.parametrize("K", [64, 128])
def test_a_hundred_runs_at_full_load_differ_in_nothing_but_dq(K):
    arguments = tensors(Case(1999, 2111, 2048 // K, 2, K, True, BRAIN, 4), "cuda")
    o, lse, dq, dk, dv = answers(hopper.fused, *arguments, True)
    for _ in range(99):
        again = answers(hopper.fused, *arguments, True)
        for i, right in enumerate((o, lse, dq, dk, dv)):
            assert i == 2 or torch.equal(again[i], right)
        assert (again[2] - dq).norm() <= torch.finfo(BRAIN).eps * dq.norm()


WATCHED = """
case = here.Case(201, 300, 2, 1, 64, True, torch.bfloat16)
arguments = here.tensors(case, "cuda")
ours = here.answers(here.hopper.fused, *arguments, True)
here.no_worse_than_plain(case, arguments, ours)
"""


@pytest.mark.gpu
@only_hopper
def test_the_concurrency_sanitizer_finds_nothing():
    done = sanitized(WATCHED)
    assert done.returncode == 0 and done.stdout == "all is well\n", done.stderr[-2000:]
