"""Norms, SwiGLU and the cross-entropy of a part of a vocabulary, beside torch's own and a loop."""

from itertools import pairwise
from math import exp, inf, log

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional

from weft.ref import tensor as ref


def drawn(*shapes, seed=0):
    dice = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=dice).double().requires_grad_() for s in shapes]


def test_norms_are_torchs_of_the_sum_and_give_the_sum():
    x, residual, weight, bias = drawn((2, 3, 5), (2, 3, 5), 5, 5)
    total = x + residual
    for found, wanted in (
        (ref.rms_norm(x, weight, residual), functional.rms_norm(total, (5,), weight, 1e-6)),
        (ref.layer_norm(x, weight, bias, residual),
         functional.layer_norm(total, (5,), weight, bias)),
    ):  # fmt: skip
        torch.testing.assert_close(found, (wanted, total))
    y, same = ref.rms_norm(x, weight)
    assert same is x
    torch.testing.assert_close(y, functional.rms_norm(x, (5,), weight, 1e-6))
    torch.testing.assert_close(ref.layer_norm(x, weight)[0], functional.layer_norm(x, (5,), weight))


def test_half_precision_is_computed_in_fp32_of_the_rounded_sum():
    x, residual, weight, gate = (
        one.detach().bfloat16() for one in drawn((3, 7), (3, 7), 7, (3, 7))
    )
    y, total = ref.rms_norm(x, weight, residual)
    assert torch.equal(total, x + residual)
    exact, _ = ref.rms_norm(total.double(), weight.double())
    assert y.dtype == torch.bfloat16 and torch.equal(y, exact.bfloat16())
    assert torch.equal(ref.swiglu(gate, x), ref.swiglu(gate.double(), x.double()).bfloat16())


def test_swiglu_is_silu_of_one_times_the_other():
    gate, up = drawn((2, 5), (2, 5))
    torch.testing.assert_close(ref.swiglu(gate, up), functional.silu(gate) * up)
    assert gradcheck(ref.swiglu, (gate, up))


def test_a_part_is_three_numbers_for_each_token():
    (scores,) = drawn((4, 6))
    targets = torch.tensor([3, 8, 7, 5])
    part = ref.vocabulary_part(scores, targets, first=4, last=9)  # the sixth column is padding
    for t, row in enumerate(scores.tolist()):
        assert part.most[t] == max(row[:5])
        assert part.sums[t].item() == pytest.approx(sum(exp(s - max(row[:5])) for s in row[:5]))
        own = 4 <= targets[t] < 9
        assert part.target[t] == (row[targets[t] - 4] if own else 0)


def test_parts_are_merged_into_the_whole_and_so_are_those_without_words():
    scores, targets = 300 * drawn((2, 3, 11))[0].detach(), torch.tensor([[0, 10, 5], [3, 7, 9]])
    scores[0, 0] = -inf
    scores[0, 0, 7] = -1.0  # all others of a rank may be words that must not come
    cuts = (0, 4, 4, 5, 11)
    padded = functional.pad(scores, (0, 2), value=torch.nan)
    parts = [ref.vocabulary_part(padded[..., a : b + 2], targets, a, b) for a, b in pairwise(cuts)]
    assert parts[1].most.eq(-inf).all() and parts[1].sums.eq(0).all()
    whole = ref.merge(parts)
    torch.testing.assert_close(whole.lse, scores.logsumexp(-1))
    wanted = functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none")
    torch.testing.assert_close(whole.loss.flatten(), wanted)
    assert whole.loss[0, 0] == inf
    torch.testing.assert_close(ref.merge(parts[:1]), parts[0])


def test_the_gradient_is_autograds_part_by_part_and_0_in_padding():
    (scores,) = drawn((5, 7))
    targets = torch.tensor([0, 6, 3, 4, 2])
    loss = ref.cross_entropy(scores, targets)
    torch.testing.assert_close(loss, functional.cross_entropy(scores, targets))
    (wanted,) = torch.autograd.grad(3 * loss, scores)
    lse, slope = scores.detach().logsumexp(-1), torch.tensor(3 / 5).double()
    for a, b in ((0, 4), (4, 7)):
        own = functional.pad(scores.detach()[:, a:b], (0, 1))
        found = ref.scores_gradient(own, targets, lse, slope, a, b)
        torch.testing.assert_close(found, functional.pad(wanted[:, a:b], (0, 1)))
        each = ref.scores_gradient(own, targets, lse, slope.expand(5), a, b, in_place=True)
        assert torch.equal(each, found) and each.data_ptr() == own.data_ptr()
    assert gradcheck(ref.cross_entropy, (scores, targets))


def test_a_word_of_even_scores_costs_the_log_of_their_number():
    assert ref.cross_entropy(torch.zeros(2, 9), torch.tensor([0, 8])).item() == pytest.approx(
        log(9)
    )


X, W = torch.zeros(2, 4), torch.zeros(4)
SCORES, WORDS = torch.zeros(3, 8), torch.zeros(3, dtype=torch.int64)
WRONG = {
    "weight has shape [5], must be [4]": lambda f: f.rms_norm(X, torch.zeros(5)),
    "bias has shape [3], must be [4]": lambda f: f.layer_norm(X, W, torch.zeros(3)),
    "residual has shape [2, 3], must be [2, 4]": lambda f: f.rms_norm(X, W, X[:, :3]),
    "residual is torch.bfloat16, must be torch.float32": lambda f: f.rms_norm(X, W, X.bfloat16()),
    "x has shape [4], must be a tensor [.., D]": lambda f: f.rms_norm(W, W),
    "x has shape [2, 0], must be a tensor": lambda f: f.rms_norm(X[:, :0], W[:0]),
    "eps is -1.0": lambda f: f.layer_norm(X, W, eps=-1.0),
    "up has shape [2, 3], must be [2, 4]": lambda f: f.swiglu(X, X[:, 1:]),
    "up is torch.float16, must be torch.float32": lambda f: f.swiglu(X, X.half()),
    "targets has shape [2], must be [3]": lambda f: f.vocabulary_part(SCORES, WORDS[:2]),
    "targets is int32, must be int64": lambda f: f.vocabulary_part(SCORES, WORDS.int()),
    "first is -1": lambda f: f.vocabulary_part(SCORES, WORDS, -1),
    "last is 13, must be from first = 4 to 12": lambda f: f.vocabulary_part(SCORES, WORDS, 4, 13),
    "last is 3, must be from first = 4 to 12": lambda f: f.vocabulary_part(SCORES, WORDS, 4, 3),
    "scores has shape [3, 0]": lambda f: f.cross_entropy(SCORES[:, :0], WORDS),
    "targets are from 0 to 8, must be from 0 to 7": lambda f: f.cross_entropy(
        SCORES, torch.tensor([0, 8, 1])
    ),
    "targets are from -1 to 0, must": lambda f: f.cross_entropy(SCORES, torch.tensor([0, -1, 0])),
    "targets have shape [0], must have at least one": lambda f: f.cross_entropy(
        SCORES[:0], WORDS[:0]
    ),
    "lse has shape [2], must be [3]": lambda f: f.scores_gradient(SCORES, WORDS, W[:2], W[0]),
    "slope has shape [2], must be [3] or []": lambda f: f.scores_gradient(
        SCORES, WORDS, W[:3], W[:2]
    ),
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_argument_is_named(said):
    with pytest.raises(ValueError) as caught:
        WRONG[said](ref)
    assert str(caught.value).startswith(said)


def test_parts_that_are_none_are_refused():
    for parts in ((), None):
        with pytest.raises(ValueError, match=r"parts is .*, must be at least one VocabularyPart"):
            ref.merge(parts)
