"""The layer of experts: the reference's numbers, its initial values, and what its router tells."""

import pytest
import torch

from weft.kernels import experts as kernels
from weft.nn.experts import SwitchBlock, SwitchMLP, balance, decoder
from weft.nn.transformer import Block, Config
from weft.ref import experts as reference


@pytest.mark.parametrize(("k", "factor"), [(1, None), (2, 0.5)])
def test_it_is_the_reference_on_all_tokens_of_a_call(k, factor):
    torch.manual_seed(0)
    layer, x = SwitchMLP(6, 10, 4, k, factor).double(), torch.randn(3, 5, 6).double()
    wanted = reference.switch(x.view(15, 6), layer.router, layer.up, layer.down, k, factor)
    torch.testing.assert_close(layer(x), wanted.view(3, 5, 6))
    scores, routes, choices = layer.routed
    assert choices.sum() == 15 * k and routes.kept.all().item() == (factor is None)
    torch.testing.assert_close(balance(layer.routed), reference.balance(scores, routes))
    assert set(layer.state_dict()) == {"router", "up", "down"}


def test_a_kernel_takes_the_place_of_the_loop():
    def kernel(x, expert, weight, kept, up, down):
        return x * weight.sum(-1, keepdim=True)

    layer, x = SwitchMLP(6, 10, 4, k=4, kernel=kernel), torch.randn(7, 6)
    torch.testing.assert_close(layer(x), x)  # all experts' probabilities add up to 1


def test_a_bias_chooses_and_does_not_weigh():
    layer, x = SwitchMLP(6, 10, 4), torch.randn(7, 6)
    layer.bias = torch.tensor([0.0, 0.0, 2.0, 0.0])
    layer(x)
    scores, routes, choices = layer.routed
    assert choices.tolist() == [0, 0, 7, 0]
    torch.testing.assert_close(routes.weight, scores.softmax(-1)[:, 2:3])
    assert "bias" in layer.state_dict()


def test_weights_begin_small_and_cut_off():
    torch.manual_seed(0)
    layer = SwitchMLP(40, 90, 8)
    for weight, rows in ((layer.router, 40), (layer.up, 40), (layer.down, 90)):
        std = (0.1 / rows) ** 0.5
        assert weight.abs().max() <= 2 * std
        assert weight.std().item() == pytest.approx(0.88 * std, rel=0.1)  # what the cut leaves


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((6, 10, 4, 5), "k is 5, must be at most experts = 4"),
        ((6, 10, 4, 0), "k is 0, must be a whole number of at least 1"),
        ((6, 10, 4, 1, 0.0), "factor is 0.0, must be a number above 0 and finite"),
        ((0, 10, 4), "width is 0, must be a whole number of at least 1"),
    ],
)
def test_a_wrong_size_is_named(given, said):
    with pytest.raises(ValueError, match=said):
        SwitchMLP(*given)


@pytest.mark.parametrize("factor", [None, 0.75])
@pytest.mark.parametrize("compute", [reference.mlp, kernels.mlp])
def test_the_reference_and_the_kernel_compute_what_the_layer_does(compute, factor):
    torch.manual_seed(0)
    layer, x = SwitchMLP(9, 17, 5, 2, factor), torch.randn(11, 9)
    y = layer(x)
    wanted = y, *torch.autograd.grad(y.square().sum(), layer.parameters())
    layer.kernel = compute
    y = layer(x)
    found = y, *torch.autograd.grad(y.square().sum(), layer.parameters())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_every_second_block_of_a_decoder_has_experts():
    config = Config(layers=4, width=8, heads=2, seq=6)
    model = decoder(config, 3, k=2, factor=1.0)
    assert [type(part) for part in model[1:-1]] == [Block, SwitchBlock] * 2
    assert model(torch.zeros(2, 6, dtype=torch.int64)).shape == (2, 6, 256)
    assert model[2].experts.routed.choices.sum() == 2 * 12
    with pytest.raises(ValueError, match="every is 0, must be a whole number"):
        decoder(config, 3, every=0)
