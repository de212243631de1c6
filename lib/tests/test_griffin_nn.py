"""Griffin and Hawk: published weights, decoding as in training, a bounded slope, and a lesson."""

import json

import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

from weft.nn.griffin import Griffin, GriffinConfig, Hawk, load, rg_lru
from weft.ref import griffin as ref

SMALL = {
    "num_hidden_layers": 4,
    "hidden_size": 24,
    "intermediate_size": 60,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "lru_width": 24,
    "vocab_size": 50,
    "attention_window_size": 6,
}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A small RecurrentGemma with all its weights moved, as it is written, and read again."""
    torch.manual_seed(0)
    config = transformers.RecurrentGemmaConfig(**SMALL)
    theirs = transformers.RecurrentGemmaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "recurrent_param" not in name:
                weight.add_(0.3 * torch.randn_like(weight))
    folder = tmp_path_factory.mktemp("recurrentgemma")
    theirs.save_pretrained(folder)
    return theirs, folder


def test_a_published_model_says_what_transformers_says(published):
    theirs, folder = published
    tokens = torch.randint(50, (2, 13), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(tokens, use_cache=False).logits
        found = load(folder)(tokens)
    assert expected.abs().max() > 1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", [Griffin, Hawk])
def test_decoding_says_what_training_says_and_its_state_does_not_grow(kind):
    torch.manual_seed(2)
    model = kind(GriffinConfig(layers=3, width=12, heads=3, vocab=11, window=3)).double()
    tokens, state, sizes = torch.randint(11, (2, 9)), None, set()
    whole = model(tokens)
    for t in range(9):
        scores, state = model.step(tokens[:, t], state)
        torch.testing.assert_close(scores, whole[:, t], rtol=1e-10, atol=1e-10)
        sizes.add(sum(x.numel() for kept in state[1] for x in kept))
    assert len(sizes) == 1
    first, state = model.run(tokens[:, :5], None)  # a prompt in two pieces, longer than the window
    rest, _ = model.run(tokens[:, 5:], state)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, rtol=1e-10, atol=1e-10)


def test_its_recurrence_is_the_reference_and_its_slope_is_bounded():
    torch.manual_seed(3)
    x, i, r = (torch.rand(2, 7, 3, dtype=torch.float64) for _ in range(3))
    p = torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64)
    h = torch.rand(2, 3, dtype=torch.float64)
    for initial in (None, h):
        found = rg_lru(x, i, r, p, initial)
        torch.testing.assert_close(found, ref.rg_lru(x, i, r, p, initial, final=True))
    shut = torch.zeros(1, 3, 1, requires_grad=True)  # a = 1: nothing is forgotten, or written
    for bounded in (True, False):
        given = torch.ones(1, 3, 1), torch.ones(1, 3, 1), shut, torch.ones(1)
        o = rg_lru(*given)[0] if bounded else ref.rg_lru(*given)
        (slope,) = torch.autograd.grad(o.sum(), shut)
        assert slope.isfinite().all() == bounded


def test_it_learns_what_came_many_tokens_before():
    torch.manual_seed(4)
    model = Griffin(GriffinConfig(layers=3, width=16, heads=2, vocab=4, window=2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        tokens = torch.randint(1, 4, (32, 6))  # the first is further back than any window
        loss = cross_entropy(model(tokens)[:, -1], tokens[:, 0])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.3  # guessing has log 3 = 1.1


def test_what_is_not_such_a_model_is_named(published, tmp_path):
    _, folder = published
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        load(tmp_path)
    said = json.loads((folder / "config.json").read_text())

    def refused(message, **changed):
        (tmp_path / "config.json").write_text(json.dumps(said | changed))
        with pytest.raises(ValueError, match=message):
            load(tmp_path)

    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    refused("model_type is 'llama' in config.json, must be 'recurrent_gemma'", model_type="llama")
    refused("must be 'gelu_pytorch_tanh'", hidden_activation="relu")
    refused(r"has no weight blocks\.4\.", num_hidden_layers=5)
    refused(r"has a weight blocks\.3\.", num_hidden_layers=3)
    refused(r"embedding.weight is \[50, 24\] in .* must be \[51, 24\]", vocab_size=51)
    refused("window is 0, must be at least 1", attention_window_size=0)
    (tmp_path / "model.safetensors").write_bytes(b"nothing of the kind")
    refused("is not a safetensors file")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        load(tmp_path)
