"""Longformer: published weights, what each head sees, and what is not such a model."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

from weft.kernels.sparse import longformer as kernel
from weft.nn.sparse import Longformer, LongformerConfig, load
from weft.ref.sparse import longformer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = {
    "num_hidden_layers": 3,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 3,
    "vocab_size": 50,
    "max_position_embeddings": 64,
    "attention_window": [4, 8, 16],
    "type_vocab_size": 2,
}
KINDS = {
    "masked": (transformers.LongformerForMaskedLM, {}),
    "untied": (transformers.LongformerForMaskedLM, {"tie_word_embeddings": False}),
    "base": (transformers.LongformerModel, {}),
    "relu, pad 0": (transformers.LongformerForMaskedLM, {"hidden_act": "relu", "pad_token_id": 0}),
}


def written(kind, folder):
    """A small Longformer with all its weights moved, as it is written into a folder."""
    torch.manual_seed(0)
    cls, changed = KINDS[kind]
    theirs = cls(transformers.LongformerConfig(**SMALL | changed)).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    theirs.save_pretrained(folder)
    return theirs


@pytest.fixture(autouse=True)
def one_thread():
    """Waking another takes longer than these models do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    one = tmp_path_factory.mktemp("longformer")
    written("masked", one)
    return one


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_published_model_says_what_transformers_says(kind, tmp_path):
    """At lengths that the widest window, 16, divides or not; with padding among the tokens."""
    theirs = written(kind, tmp_path)
    ours, dice = load(tmp_path), torch.Generator().manual_seed(1)
    for T in (16, 21, 61, 3):
        tokens = torch.randint(50, (2, T), generator=dice)
        tokens[1, -2:] = theirs.config.pad_token_id
        some = torch.zeros(2, T, dtype=torch.bool)
        some[0, 0] = some[0, T // 2] = some[1, T - 1] = True
        for mask in (None, some, some & torch.tensor([[True], [False]])):
            given = None if mask is None else mask.long()
            said = theirs(tokens, global_attention_mask=given)
            expected = said.last_hidden_state if kind == "base" else said.logits
            assert expected.abs().max() > 1
            torch.testing.assert_close(ours(tokens, mask), expected, rtol=0, atol=1e-4)


def test_a_model_in_half_precision_stays_so(folder, tmp_path):
    theirs = transformers.LongformerForMaskedLM.from_pretrained(folder, dtype=torch.bfloat16)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert {x.dtype for x in ours.parameters()} == {torch.bfloat16}
    assert ours(torch.zeros(1, 5, dtype=torch.long)).dtype == torch.bfloat16


def test_each_layer_and_head_sees_its_own_window():
    """From gradients: which tokens the last one's state depends on."""
    torch.manual_seed(1)
    sizes = {"width": 12, "heads": 3, "vocab": 7, "scores": False}
    T, last = 40, 20
    for causal, layers, windows, dilations, seen in (
        (False, 1, (2,), (), {0, 1, 2}),
        (False, 1, (2,), ((1, 1, 5),), {0, 1, 2, 5, 10}),
        (True, 1, (2,), ((3, 3, 3),), {0, 3, 6}),
        (True, 2, (1, 3), ((1, 1, 1), (4, 4, 4)), {0, 1, 4, 5, 8, 9, 12, 13}),
    ):
        config = LongformerConfig(
            layers, windows=windows, dilations=dilations, causal=causal, **sizes
        )
        model = Longformer(config).double()
        reached = []
        model.tokens.register_forward_hook(lambda *a, r=reached: r.append(a[2].requires_grad_()))
        o = model(torch.zeros(1, T, dtype=torch.long))
        (gradient,) = torch.autograd.grad(o[0, last, 0], reached)
        want = {last - back for back in seen} | (set() if causal else {last + x for x in seen})
        assert set(gradient[0].abs().sum(-1).nonzero().flatten().tolist()) == want


@torch.no_grad()
def test_a_global_token_sees_all_is_seen_by_all_and_alone_uses_its_projections():
    torch.manual_seed(2)
    model = Longformer(LongformerConfig(1, 12, 3, 7, windows=(1,), scores=False)).double()
    tokens = torch.randint(7, (1, 15))
    mask = torch.zeros(1, 15, dtype=torch.bool)
    mask[0, 4] = True
    with torch.no_grad():
        before = model(tokens, mask)
        changed = tokens.clone()
        changed[0, 4] = (tokens[0, 4] + 1) % 7
        assert (model(changed, mask) != before).any(-1).all()
        changed = tokens.clone()
        changed[0, 14] = (tokens[0, 14] + 1) % 7
        assert (model(changed, mask) != before).any(-1)[0].nonzero().flatten().tolist() == [
            4,
            13,
            14,
        ]
        model.blocks[0].mixer.global_v.bias += 1
        assert (model(tokens, mask) != before).any(-1)[0].nonzero().flatten().tolist() == [4]
        assert torch.equal(model(tokens, mask & False), model(tokens))


def test_attention_is_passed_in():
    asked = []

    def noted(q, k, v, window, dilation, *rest):
        asked.append((q.shape[2], window, dilation))
        return longformer(q, k, v, window, dilation, *rest)

    dilations = ((1, 1, 1, 1), (1, 2, 1, 2))
    Longformer(LongformerConfig(dilations=dilations), noted)(torch.zeros(1, 9, dtype=torch.long))
    assert asked == [(4, 8, 1), (2, 16, 1), (2, 16, 2)]


def test_what_is_not_such_a_model_is_named(folder, tmp_path):
    said, weights = json.loads((folder / "config.json").read_text()), tmp_path / "model.safetensors"
    weights.write_bytes((folder / "model.safetensors").read_bytes())

    def refused(message, without=(), **changed):
        new = {name: value for name, value in (said | changed).items() if name not in without}
        (tmp_path / "config.json").write_text(json.dumps(new))
        with pytest.raises(ValueError, match=message):
            load(tmp_path)

    refused("model_type is 'led' in config.json, must be 'longformer'", model_type="led")
    refused("model_type is None in config.json", without=["model_type"])
    refused("position_embedding_type is 'relative_key'", position_embedding_type="relative_key")
    refused("attention_window is 5, must be even", attention_window=5)
    refused("attention_window is 0, must be a whole number of at least 2", attention_window=0)
    refused(r"windows is \(2, 4\), must have one for each of 3 layers", attention_window=[4, 8])
    refused("config.json has no attention_window", without=["attention_window"])
    refused("activation is 'mish', must be one of gelu, relu", hidden_act="mish")
    refused(r"has no weight blocks\.3\.", num_hidden_layers=4, attention_window=4)
    refused(r"has a weight blocks\.2\.", num_hidden_layers=2, attention_window=4)
    refused(r"tokens.weight is \[50, 24\] in .* must be \[51, 24\]", vocab_size=51)
    refused("has no weight scores.decoder.weight", tie_word_embeddings=False)
    refused("pad is 63, must be at most 49", pad_token_id=63)
    kept = load_file(weights)
    save_file(kept | {"classifier.dense.weight": torch.zeros(2, 24)}, weights)
    refused("has a weight classifier.dense.weight, which the model has not")
    save_file({name: x for name, x in kept.items() if "token_type" not in name}, weights)
    refused("has no weight embeddings.token_type_embeddings.weight")


def test_a_wrong_size_is_named():
    for message, given in {
        "windows is (8,), must have one for each of 2 layers": {"windows": (8,)},
        "windows is -1": {"windows": (8, -1)},
        "dilations is (1, 1), must have one for each of 4 heads": {"dilations": ((1, 1),) * 2},
        "dilations is 0": {"dilations": ((0,) * 4,) * 2},
        "width is 10, must be a multiple of heads = 4": {"width": 10},
        "pad is 511, must be at most 255": {"pad": 511},
    }.items():
        with pytest.raises(ValueError) as caught:
            LongformerConfig(**given)
        assert str(caught.value).startswith(message)
    model = Longformer(LongformerConfig(positions=9, pad=1))
    model(torch.zeros(1, 7, dtype=torch.long))
    with pytest.raises(ValueError, match="tokens have 8 in time, must have at most 7"):
        model(torch.zeros(1, 8, dtype=torch.long))
    with pytest.raises(ValueError, match="global_mask is int64, must be bool"):
        model(torch.zeros(1, 7, dtype=torch.long), torch.ones(1, 7, dtype=torch.long))


@torch.no_grad()
def test_the_kernel_gives_the_same_model():
    torch.manual_seed(3)
    ours, theirs = (Longformer(LongformerConfig(), one) for one in (longformer, kernel))
    theirs.load_state_dict(ours.state_dict())
    tokens, mask = torch.randint(256, (2, 21)), torch.zeros(2, 21, dtype=torch.bool)
    mask[1, 3] = True
    ours, theirs = (
        model.to(DEVICE)(tokens.to(DEVICE), mask.to(DEVICE)) for model in (ours, theirs)
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_what_stands_beyond_every_window_is_learned_through_a_global_token():
    lost = {}
    for seen in (True, False):
        torch.manual_seed(4)
        model = Longformer(LongformerConfig(2, 16, 2, 4, windows=(1, 1)))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(80):
            tokens = torch.randint(1, 4, (32, 8))
            mask = torch.zeros(32, 8, dtype=torch.bool)
            mask[:, 0] = seen
            loss = cross_entropy(model(tokens, mask)[:, -1], tokens[:, 0])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        lost[seen] = loss.item()
    assert lost[True] < 0.3 and lost[False] > 0.9  # guessing has log 3 = 1.1
