"""Attention along lists of squares against the definition: values, gradients, and the lists."""

import re
from itertools import product

import pytest
import torch

from weft.bench import machine_code
from weft.bench.record import read
from weft.kernels import sparse
from weft.kernels.attention import problem
from weft.kernels.sparse.face import allowed
from weft.kernels.sparse.launch import along_lists
from weft.kernels.sparse.lists import Squares, lists, seen_by_layout, seen_by_window
from weft.plan.sparse import blocks
from weft.ref import sparse as reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MASK = torch.zeros(2, 70, dtype=torch.bool)
MASK[0, 40] = MASK[1, 0] = MASK[1, 66] = True


def drawn(T, S, G=2, dtype=torch.float32):
    """q, k, v and the gradient of o, of odd widths."""
    dice = torch.Generator().manual_seed(T)
    shapes = (2, T, 4, 5), (2, S, G, 5), (2, S, G, 9), (2, T, 4, 9)
    return [torch.randn(shape, generator=dice).to(DEVICE, dtype) for shape in shapes]


def answers(face, q, k, v, do, *args, **how):
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    o = face(q, k, v, *args, **how)
    return [x.detach().double() for x in (o, *torch.autograd.grad(o, (q, k, v), do))]


def close(name, given, *args, **how):
    found = answers(getattr(sparse, name), *given, *args, **how)
    wanted = answers(getattr(reference, name), *(x.double() for x in given), *args, **how)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("window", "dilation", "causal", "masked"),
    [(0, 1, False, True), (9, 1, True, False), (40, 1, True, True), (7, 5, False, False),
     (33, 2, True, True)],
)  # fmt: skip
def test_a_window_and_global_tokens_are_longformers(window, dilation, causal, masked):
    mask = MASK.to(DEVICE) if masked else None
    close("longformer", drawn(70, 70), window, dilation, causal, global_mask=mask)


def test_global_tokens_have_projections_of_their_own():
    q, k, v, _ = drawn(40, 40)
    mask = torch.zeros(2, 40, dtype=torch.bool, device=DEVICE)
    mask[0, 3] = True  # and none in the other
    others = [x.flip(1) for x in (q, k, v)]
    found = sparse.longformer(q, k, v, 4, 1, False, 0.3, mask, *others)
    wanted = reference.longformer(q, k, v, 4, 1, False, 0.3, mask, *others)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("block", "heads"), [(7, 4), (16, 1), (32, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_of_a_layout_are_seen_and_no_others(block, heads, causal):
    T, S = 37, 75
    dice = torch.Generator().manual_seed(block)
    layout = torch.rand(heads, -(-T // block), -(-S // block), generator=dice) < 0.5
    layout[0, 1] = False  # rows that see nothing are 0, and so are their gradients
    close("block_sparse", drawn(T, S), layout.to(DEVICE), block, causal=causal)


def test_half_precision_is_summed_in_fp32():
    q, k, v, _ = drawn(70, 70, G=4, dtype=torch.bfloat16)
    found = sparse.longformer(q, k, v, 20, causal=True)
    wanted = reference.longformer(q.double(), k.double(), v.double(), 20, causal=True)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), wanted, atol=0.02, rtol=0.02)


def test_rows_that_see_nothing_are_zero_and_their_log_sum_is_minus_infinity():
    q, k, v, _ = drawn(40, 40)
    layout = torch.ones(1, 4, 4, dtype=torch.bool, device=DEVICE)
    layout[0, 2] = False
    x = problem(q, k, v, False, None, None)
    o, lse = along_lists(x, allowed(x, layout, 12))
    empty = torch.zeros(40, dtype=torch.bool, device=DEVICE)
    empty[24:36] = True
    assert not o[:, empty].any() and o[:, ~empty].all()
    assert torch.equal(lse == -torch.inf, empty[None, :, None].expand(lse.shape))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda q, k, v: sparse.longformer(q, k, v, -1), "window is -1"),
        (lambda q, k, v: sparse.longformer(q, k, v, 1, 0), "dilation is 0"),
        (lambda q, k, v: sparse.longformer(q, k[:, 1:], v[:, 1:], 1), "k has 7 keys, must have"),
        (lambda q, k, v: sparse.block_sparse(q, k, v, None, 0), "block is 0"),
    ],
)
def test_a_wrong_argument_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call(*drawn(8, 8)[:3])


# --- the lists ------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_the_squares_of_a_window_are_those_of_the_plan(causal):
    for T, unit, window, dilation in product((1, 7, 16), (3, 4), (0, 1, 5, 40), (1, 3)):
        found = seen_by_window(T, unit, window * dilation, dilation, causal, None)
        wanted = blocks(T, unit, window, dilation, causal=causal)
        assert {tuple(x) for x in found.touched[0, 0].nonzero().tolist()} == wanted


@pytest.mark.parametrize("causal", [False, True])
def test_a_square_is_full_where_every_pair_counts_and_touched_where_one_does(causal):
    T, unit = 13, 4
    mask = torch.zeros(2, T, dtype=torch.bool)
    mask[0, 6] = mask[1, 11:] = True
    back = torch.arange(T).unsqueeze(1) - torch.arange(T)
    for window in (0, 2, 6, 20):
        pairs = (back.abs() <= window) | mask[:, None, :]
        pairs &= (back >= 0) | (not causal)
        found = seen_by_window(T, unit, window, 1, causal, mask)
        for b, r, c in product(range(2), range(4), range(4)):
            square = pairs[b, r * 4 : r * 4 + 4, c * 4 : c * 4 + 4]
            assert found.touched[b, 0, r, c] == square.any()
            # A square that global keys alone make full is masked all the same.
            if found.full[min(b, len(found.full) - 1), 0, r, c]:
                assert square.all() and square.shape[1] == unit


@pytest.mark.parametrize("causal", [False, True])
def test_squares_of_a_layout_count_its_pairs(causal):
    T, S, unit = 11, 17, 4
    for block in (1, 3, 4, 8):
        dice = torch.Generator().manual_seed(block)
        layout = torch.rand(2, -(-T // block), -(-S // block), generator=dice) < 0.6
        pairs = layout.repeat_interleave(block, 1).repeat_interleave(block, 2)[:, :T, :S]
        if causal:
            pairs = pairs & (torch.arange(S) <= torch.arange(T).unsqueeze(1) + S - T)
        touched, full = seen_by_layout(T, S, unit, layout, block, causal)
        for h, r, c in product(range(2), range(3), range(5)):
            square = pairs[h, r * 4 : r * 4 + 4, c * 4 : c * 4 + 4]
            assert touched[0, h, r, c] >= square.any()
            assert full[0, h, r, c] == (square.all() and square.shape[1] == unit)


def test_a_list_has_full_squares_first_and_the_other_list_is_its_transpose():
    touched = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()[None, None]
    full = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]]).bool()[None, None]
    rows, columns = lists(Squares(touched, full))
    assert rows.bounds[0, 0].tolist() == [[0, 1, 3], [3, 3, 3], [3, 5, 7]]
    assert rows.tiles.tolist() == [1, 0, 3, 0, 3, 1, 2]
    assert columns.bounds[0, 0].tolist() == [[0, 1, 2], [2, 3, 4], [4, 4, 5], [5, 6, 7]]
    assert columns.tiles.tolist() == [2, 0, 0, 2, 2, 2, 0]


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_compiled_for_gpus_it_multiplies_on_tensor_cores_as_the_record_says(target, root):
    """One pass for each chip, to save time: the record has all of them, and that nothing spills."""
    kind = {"sm_80": " of a layout", "sm_90": "", "sm_100": " in a window"}[target]
    name = f"forward for {target} at width 128{kind}"
    (one,) = machine_code.built("sparse", target, [name])
    assert one.spills == 0
    assert sum(one.count(name) for name in ("HMMA", "HGMMA", "UTCHMMA")) > 0
    # Each loop has the next tiles in flight; none would be if its own turn read where they are.
    waits = [int(pending) for pending in re.findall(r"cp\.async\.wait_group\s+(\d+)", one.ptx)]
    loops = 3 if "window" in kind else 2
    assert sum(pending > 0 for pending in waits) >= loops and waits.count(0) <= loops
    (listed,) = (x for x in machine_code.sparse(target) if x.name == name)
    record = read(root / "book/measured/sparse-code.cpu.json")
    rows = machine_code.differences(record, machine_code.counted(one, listed))
    assert not rows, "\n" + machine_code.told(rows)
