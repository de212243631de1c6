"""The small decoder: its shapes, that it looks back only, and that a cut does not change it."""

import pytest
import torch
from torch import nn

from weft.nn.transformer import Config, causal, loss, stages

CONFIG = Config(layers=5, width=12, heads=3, vocab=17, seq=7, hidden=20)


def model(count=1, config=CONFIG, **options) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*stages(config, count, **options)).double()


def tokens(batch=2, time=7) -> torch.Tensor:
    return torch.randint(17, (batch, time), generator=torch.Generator().manual_seed(1))


def test_scores_have_a_place_for_every_token():
    assert model()(tokens()).shape == (2, 7, 17)
    assert model()(tokens(time=3)).shape == (2, 3, 17)


def test_what_comes_later_changes_nothing_before():
    x = tokens()
    changed = x.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 17
    before, after = model()(x), model()(changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.isclose(before[:, 4:], after[:, 4:]).all(dim=-1).any()


@pytest.mark.parametrize("count", [2, 5, [0, 5, 0], [4, 1], (1, 3, 1)])
def test_every_cut_is_the_same_model(count):
    whole, cut = model(), model(count)
    assert len(cut) == (count if isinstance(count, int) else len(count))
    assert torch.equal(whole(tokens()), cut(tokens()))


def test_blocks_are_dealt_out_evenly():
    sizes = [len(stage) for stage in stages(CONFIG, 3)]
    assert sizes == [1 + 2, 2, 1 + 1]


def test_the_loss_of_no_knowledge_is_the_logarithm_of_the_vocabulary():
    scores = torch.zeros(2, 7, 17, dtype=torch.float64)
    assert torch.isclose(loss(scores, tokens()), torch.tensor(17.0).double().log())


def test_attention_is_passed_in():
    seen = []

    def attention(q, k, v):
        seen.append((q.shape, k.shape, v.shape))
        return causal(q, k, v)

    assert torch.equal(model(attention=attention)(tokens()), model()(tokens()))
    assert seen == [((2, 7, 3, 4),) * 3] * 5


def test_causal_attention_is_softmax_over_what_came_before():
    q, k, v = torch.randn(3, 2, 5, 3, 4, dtype=torch.float64)
    for time in range(5):
        scores = torch.einsum("bhk,bshk->bhs", q[:, time], k[:, : time + 1]) / 4**0.5
        expected = torch.einsum("bhs,bshk->bhk", scores.softmax(-1), v[:, : time + 1])
        assert torch.allclose(causal(q, k, v)[:, time], expected)


def test_every_weight_is_trained():
    whole = model()
    loss(whole(tokens()), tokens()).backward()
    assert all(weight.grad.abs().max() > 0 for weight in whole.parameters())


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"layers": 0}, "layers is 0, must be at least 1"),
        ({"heads": 5}, "width is 64, must be a multiple of heads = 5"),
        ({"hidden": 0}, "hidden is 0, must be at least 1"),
    ],
)
def test_sizes_that_cannot_be(sizes, match):
    with pytest.raises(ValueError, match=match):
        Config(**sizes)


@pytest.mark.parametrize("count", [0, 6, [], [2, 2], [3, 0, 2], [6, -1]])
def test_cuts_that_cannot_be(count):
    with pytest.raises(ValueError, match=r"count is .*, must be"):
        stages(CONFIG, count)


def test_a_sequence_that_is_too_long():
    with pytest.raises(ValueError, match="tokens have 8 in time, must have at most seq = 7"):
        model()(tokens(time=8))
