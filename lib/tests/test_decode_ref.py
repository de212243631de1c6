"""Paged attention, the reference: the same as attention over the tokens in a row, wherever the
blocks lie, and whatever stands in the slots that belong to nobody."""

import pytest
import torch
from decode_cases import SCALES, WRONG, good, paged
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.ref.attention.exact import attention
from weft.ref.decode import paged_attention


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 19), min_size=1, max_size=4),
    block=st.integers(1, 6),
    heads=st.sampled_from([(1, 1), (3, 3), (6, 2), (4, 1)]),
    widths=st.sampled_from([(4, 4), (5, 3), (1, 7)]),
    scale=st.sampled_from([None, 0.3, 2]),
    seed=st.integers(0, 99),
)
def test_blocks_make_no_difference(lengths, block, heads, widths, scale, seed):
    arguments, rows = paged(lengths, block, *heads, *widths, seed)
    o = paged_attention(*arguments, scale)
    assert o.shape == (len(lengths), 1, heads[0], widths[1]) and o.dtype == torch.float64
    for b, (k, v) in enumerate(rows):
        if lengths[b]:
            alone = attention(arguments[0][b : b + 1], k[None], v[None], scale=scale)[0]
            torch.testing.assert_close(o[b], alone, rtol=1e-12, atol=1e-14)
        else:
            assert torch.equal(o[b], torch.zeros_like(o[b]))


def test_one_block_may_serve_several_sequences():
    (q, k, v, _, _), _ = paged([8, 8], 4, 2, 1, 3, 3)
    k, v = k.nan_to_num(0.5), v.nan_to_num(0.5)
    table = torch.tensor([[0, 1], [0, 2]])
    shared = paged_attention(q, k, v, table, torch.tensor([7, 6]))
    k2, v2 = torch.cat([k, k[:1]]), torch.cat([v, v[:1]])
    apart = paged_attention(q, k2, v2, torch.tensor([[0, 1], [len(k), 2]]), torch.tensor([7, 6]))
    assert torch.equal(shared, apart)


def test_it_is_the_definition():
    arguments, ((k, v),) = paged([5], 2, 1, 1, 3, 2, seed=4)
    s = (k[:, 0] @ arguments[0][0, 0, 0]) * 3**-0.5
    weights = s.exp() / s.exp().sum()
    torch.testing.assert_close(paged_attention(*arguments)[0, 0, 0], weights @ v[:, 0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types_come_out_as_they_went_in(dtype):
    arguments, _ = paged([3, 9], 4, 4, 2, 8, 8, dtype=dtype)
    exact = paged_attention(*(x.double() if x.is_floating_point() else x for x in arguments))
    o = paged_attention(*arguments)
    assert o.dtype == dtype
    assert (o.double() - exact).abs().max() <= 2 * torch.finfo(dtype).eps * exact.abs().max()


def test_nothing_has_a_gradient():
    (q, *rest), _ = paged([3], 4, 2, 2, 4, 4)
    assert not paged_attention(q.requires_grad_(), *rest).requires_grad


@pytest.mark.parametrize(("name", "change", "complaint"), WRONG)
def test_an_argument_that_does_not_fit_is_named(name, change, complaint):
    arguments = good()
    arguments[name] = change(arguments[name])
    with pytest.raises(ValueError, match=complaint):
        paged_attention(**arguments)


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_is_a_number_above_zero(scale):
    with pytest.raises(ValueError, match=r"scale is .*, must be a finite number above 0"):
        paged_attention(**good(), scale=scale)


def test_a_table_without_columns_will_do_for_sequences_without_tokens():
    arguments = good()
    arguments["block_table"] = arguments["block_table"][:, :0]
    arguments["lengths"] *= 0
    assert not paged_attention(**arguments).any()
