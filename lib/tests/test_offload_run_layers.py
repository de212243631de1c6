"""Layers whose weights lie in a store: trained to what they are trained to in memory."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from weft.meter import live
from weft.nn.transformer import Config, loss, stages
from weft.run.offload.layers import Streamed
from weft.run.offload.memory import Memory
from weft.run.offload.store import Store
from weft.run.offload.tiles import TiledLinear

CONFIG = Config(layers=3, width=12, heads=3, seq=7, vocab=19)


def decoder(dtype=torch.float64):
    """An embedding, blocks and a head, and the batches that they learn from."""
    torch.manual_seed(0)
    layers = list(stages(CONFIG, 1)[0].to(dtype))
    return layers, [torch.randint(CONFIG.vocab, (2, 5, 8)) for _ in range(4)]


def in_memory(layers, batches, make=torch.optim.Adam, **options):
    """Losses and weights of torch's own training."""
    model = nn.Sequential(*copy.deepcopy(layers))
    optimizer = make(model.parameters(), **options)
    losses = []
    for tokens, _ in batches:
        optimizer.zero_grad()
        value = loss(model(tokens[:, :-1]), tokens[:, 1:])
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses, {key: w.detach() for key, w in model.named_parameters()}


def trained(model, batches):
    """Losses of training a streamed model."""
    losses = []
    for tokens, _ in batches:
        value = loss(model(tokens[:, :-1]), tokens[:, 1:])
        value.backward()
        model.step()
        losses.append(value.item())
    return losses


def weights(model):
    """What a streamed model has become, by torch's names."""
    return {f"{int(k.split('.')[0])}.{k.split('.', 1)[1]}": w.clone() for k, w in named(model)}


def named(model):
    return ((key, weight) for key, weight in model.named_weights())


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_training_is_what_it_is_in_memory(tmp_path, kind):
    layers, batches = decoder()
    options = {"lr": 1e-2, "weight_decay": 0.1}
    losses, expected = in_memory(layers, batches, torch.optim.AdamW, **options)
    store = Memory() if kind == "memory" else Store(tmp_path, budget=2**18)
    model = Streamed(layers, store, **options, decoupled_weight_decay=True)
    assert sum(weight.numel() for layer in layers for weight in layer.parameters()) == 0
    assert list(model.parameters()) == []
    assert trained(model, batches) == pytest.approx(losses, rel=1e-12, abs=0)
    found = weights(model)
    assert found.keys() == expected.keys()
    for key, weight in expected.items():
        torch.testing.assert_close(found[key], weight, rtol=1e-12, atol=1e-12)
    if kind == "files":
        assert 0 < store.peak <= 2**18
        store.close()


def test_a_new_program_goes_on_and_a_broken_step_is_taken_back(tmp_path):
    layers, batches = decoder()
    losses, expected = in_memory(layers, batches)
    again, half = copy.deepcopy(layers), batches[:2]
    with Store(tmp_path) as store:
        model = Streamed((layer for layer in layers), store)
        assert trained(model, half) == pytest.approx(losses[:2], rel=1e-12)
        tokens = batches[3][0]
        loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()  # and no step
        with pytest.raises(RuntimeError, match="backward came twice since"):
            loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()
        model.restore()
        assert trained(model, batches[2:3]) == pytest.approx(losses[2:3], rel=1e-12)
    with Store(tmp_path) as store:
        model = Streamed(again, store)
        assert trained(model, batches[3:]) == pytest.approx(losses[3:], rel=1e-12)
        found = weights(model)
        for key, weight in expected.items():
            torch.testing.assert_close(found[key], weight, rtol=1e-12, atol=1e-12)
    with Store(tmp_path) as store:
        for wrong in (decoder()[0][:-1], [nn.Linear(3, 3)], decoder(torch.float32)[0]):
            with pytest.raises(ValueError, match="store holds"):
                Streamed(wrong, store)


def test_a_backward_that_stopped_half_way_is_no_step(tmp_path):
    class Stops(nn.Linear):
        stop = False

        def forward(self, x):
            if Stops.stop and torch.is_grad_enabled():
                raise KeyError("stopped")
            return super().forward(x)

    with Store(tmp_path) as store:
        model = Streamed([Stops(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)], store)
        before = weights(model)
        output = model(torch.ones(2, 3)).sum()
        Stops.stop = True
        with pytest.raises(KeyError):
            output.backward()
        Stops.stop = False
        with pytest.raises(RuntimeError, match="did not reach every layer"):
            model.step()
        model.restore()
        assert all(torch.equal(before[key], w) for key, w in weights(model).items())
        model(torch.ones(2, 3)).sum().backward()
        model.step()
        model.step()  # nothing to do
        assert not any(torch.equal(before[key], w) for key, w in weights(model).items())


def test_plain_memory_has_no_step_to_go_back_to():
    model = Streamed([nn.Linear(3, 3)], Memory())
    model(torch.ones(2, 3))
    model.restore()  # nothing has moved
    model(torch.ones(2, 3)).sum().backward()
    with pytest.raises(RuntimeError, match="plain memory has no earlier state"):
        model.restore()


def test_autocast_is_the_same_in_both_passes(tmp_path):
    torch.manual_seed(0)
    layers, x = [nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 5)], torch.randn(2, 3, 9)
    x, other = (given.requires_grad_() for given in x)
    with torch.no_grad():
        other.copy_(x)
    plain = nn.Sequential(*copy.deepcopy(layers))
    with Store(tmp_path) as store:
        model = Streamed(layers, store)
        for trained, given in ((model, x), (plain, other)):
            with torch.autocast("cpu", torch.bfloat16):
                output = trained(given)
            assert output.dtype == torch.bfloat16
            output.float().square().sum().backward()
    assert torch.equal(x.grad, other.grad)


def test_half_weights_have_masters_and_frozen_ones_stay(tmp_path):
    layers, batches = decoder(torch.bfloat16)
    layers[1].norm_mlp.weight.requires_grad_(False)
    with Store(tmp_path) as store:
        model = Streamed(layers, store, lr=1e-2)
        before = weights(model)
        trained(model, batches)
        after = weights(model)
        kept = store.read("layers.0001.moments")
        assert kept.dtype == torch.float32 and len(kept) == 3
        flat = store.read("layers.0001.weights")
        assert torch.equal(flat, kept[2].bfloat16()) and not torch.equal(flat.float(), kept[2])
    assert torch.equal(before["1.norm_mlp.weight"], after["1.norm_mlp.weight"])
    assert not torch.equal(before["1.up.weight"], after["1.up.weight"])


def test_dropout_falls_the_same_in_both_passes(tmp_path):
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5)) for _ in range(3)]
    whole = nn.Sequential(*copy.deepcopy(layers))
    optimizer = torch.optim.Adam(whole.parameters(), fused=True)
    with Store(tmp_path) as store:
        model = Streamed(layers, store)
        for seed in range(3):
            for net in (whole, model):
                torch.manual_seed(seed)
                net(torch.ones(4, 5)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            model.step()
        model.eval()
        whole.eval()
        with torch.no_grad():
            torch.testing.assert_close(model(torch.ones(4, 5)), whole(torch.ones(4, 5)))


def test_memory_holds_a_layer_and_not_the_model(tmp_path):
    width, depth = 128, 12
    layer = 4 * (width * width + width)
    with Store(tmp_path, budget=8 * layer) as store:
        model = Streamed((nn.Linear(width, width) for _ in range(depth)), store)
        with live() as alive:
            model(torch.ones(2, width)).square().sum().backward()
            model.step()
        reads, writes = store.read_bytes, store.written_bytes
        assert store.peak <= 8 * layer < 3 * depth * layer / 4
        assert alive.peak < 3 * layer  # gradients of one layer, and what goes between
        model(torch.ones(2, width)).square().sum().backward()
        model.step()
        weights_and_moments = 3 * depth * layer
        assert store.written_bytes - writes == weights_and_moments
        once_more = depth * layer  # weights come twice, but of the last layer nothing is ahead
        assert store.read_bytes - reads <= weights_and_moments + once_more + layer
    gc.collect()
    assert store.held == 0


# --- tiles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("features", "tiles"), [((7, 11), 4), ((5, 3), 3), ((6, 8), 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_tiles_are_the_whole_layer(features, tiles, bias):
    whole = nn.Linear(*features, bias=bias, dtype=torch.float64)
    tiled = TiledLinear.of(whole, tiles)
    x = torch.randn(3, 2, features[0], dtype=torch.float64)
    a, b = (x.clone().requires_grad_() for _ in range(2))
    weight = torch.randn(3, 2, features[1], dtype=torch.float64)
    for layer, given in ((whole, a), (tiled, b)):
        (layer(given) * weight).sum().backward()
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(tiled(x), whole(x), **close)
    torch.testing.assert_close(a.grad, b.grad, **close)
    rows = torch.cat([tile.weight.grad for tile in tiled.tiles])
    torch.testing.assert_close(rows, whole.weight.grad, **close)
    if bias:
        ends = torch.cat([tile.bias.grad for tile in tiled.tiles])
        torch.testing.assert_close(ends, whole.bias.grad, **close)
    assert [tile.out_features for tile in tiled.tiles] == [
        len(part) for part in torch.arange(features[1]).tensor_split(tiles)
    ]
    checkpointed = b.detach().clone().requires_grad_()
    again = torch.utils.checkpoint.checkpoint(tiled, checkpointed, use_reentrant=False)
    (again * weight).sum().backward()
    torch.testing.assert_close(checkpointed.grad, a.grad, **close)


def test_tiles_are_streamed_one_by_one(tmp_path):
    def block():
        up, down = (nn.Linear(*f, dtype=torch.float64) for f in ((5, 37), (37, 5)))
        return nn.Sequential(nn.LayerNorm(5, dtype=torch.float64), up, nn.GELU(), down)

    def made():
        torch.manual_seed(3)
        return [block(), block()]

    whole, tiled = nn.Sequential(*made()), made()
    for layer in tiled:
        layer[1] = TiledLinear.of(layer[1], 4)
    tiled.append(TiledLinear(5, 5, 5, dtype=torch.float64))
    whole.append(nn.Linear(5, 5, dtype=torch.float64))
    with torch.no_grad():
        whole[-1].weight.copy_(torch.cat([tile.weight for tile in tiled[-1].tiles]))
        whole[-1].bias.copy_(torch.cat([tile.bias for tile in tiled[-1].tiles]))
    optimizer = torch.optim.Adam(whole.parameters(), fused=True)
    with Store(tmp_path) as store:
        model = Streamed(tiled, store)
        for _ in range(3):
            x = torch.randn(4, 5, dtype=torch.float64)
            a, b = mse_loss(model(x), x), mse_loss(whole(x), x)
            assert a.item() == pytest.approx(b.item(), rel=1e-12)
            a.backward(), b.backward()
            model.step(), optimizer.step()
            optimizer.zero_grad()
        found = dict(model.named_weights())
        parts = [found[f"0000.1.tile{j}.weight"] for j in range(4)]
        torch.testing.assert_close(torch.cat(parts), whole[0][1].weight, rtol=1e-12, atol=1e-12)
        names = [name for name in store if name.startswith("layers.0000.1.tile")]
        assert len(names) == 8


def test_a_layer_larger_than_the_budget_fits_in_tiles(tmp_path):
    with Store(tmp_path, budget=2**18) as store:  # the layer's weight alone is that much
        with pytest.raises(ValueError, match=r"budget is 262144 bytes, must be at least 789504"):
            Streamed([nn.Linear(256, 256)], store, name="whole")
        model = Streamed([TiledLinear(256, 256, 16)], store)
        model(torch.ones(2, 256)).sum().backward()
        model.step()
        assert store.peak <= 2**18


@pytest.mark.parametrize("sizes", [(0, 3, 1), (3, 0, 1), (3, 3, 0), (3, 3, 4), (3, 3, 1.0)])
def test_tiles_that_are_none_are_refused(sizes):
    with pytest.raises(ValueError, match="must be"):
        TiledLinear(*sizes)


def test_layers_that_cannot_be_are_refused(tmp_path):
    shared = nn.Linear(3, 3)
    with Store(tmp_path) as store:
        for name, layers, said in (
            ("a", [nn.ReLU()], "layers have no parameters"),
            ("b", [], "layers have no parameters"),
            ("c", [shared, nn.ReLU(), shared], r"c\.0002 has a weight of another layer"),
            ("d", [nn.Linear(3, 3, device="meta")], r"d\.0000\.weight is .* on meta"),
            ("e", [nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).half())], "must have one type"),
        ):
            with pytest.raises(ValueError, match=said):
                Streamed(layers, store, name=name)
        store.notes["h"] = {"steps": [3]}  # an optimizer's
        with pytest.raises(ValueError, match="store holds something else named 'h'"):
            Streamed([nn.Linear(3, 3)], store, name="h")
        with pytest.raises(ValueError, match="lr is -1"):
            Streamed([nn.Linear(3, 3)], store, lr=-1)
        model = Streamed([nn.LSTM(3, 3)], store, name="f")
        with pytest.raises(ValueError, match=r"f\.0000 returned a tuple, must return one tensor"):
            model(torch.ones(2, 3))
        model = Streamed([nn.Embedding(5, 3, sparse=True)], store, name="g")
        with pytest.raises(ValueError, match=r"has a torch.sparse_coo gradient"):
            model(torch.tensor([1])).sum().backward()
