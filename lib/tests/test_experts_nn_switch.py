"""Switch the model: published weights, what is dropped, its balance, a lesson, and refusals."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers.models.switch_transformers import modeling_switch_transformers as theirs_

from weft.kernels import experts as kernels
from weft.nn.experts import SequenceMLP, Switch, SwitchConfig, load
from weft.nn.experts.relative import bucket
from weft.plan.experts import capacity
from weft.ref import experts as reference

SMALL = {
    "vocab_size": 50,
    "d_model": 24,
    "d_kv": 5,
    "d_ff": 20,
    "num_layers": 4,
    "num_sparse_encoder_layers": 2,
    "num_decoder_layers": 3,
    "num_sparse_decoder_layers": 3,
    "num_heads": 3,
    "num_experts": 4,
    "expert_capacity": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}
KINDS = {  # what is changed -> which layers of the encoder and of the decoder have experts
    "": ({}, [0, 1, 0, 1], [1, 1, 1]),
    "nothing dropped": ({"expert_capacity": 64}, [0, 1, 0, 1], [1, 1, 1]),
    "one by the rule for none": ({"num_sparse_encoder_layers": 0}, [0, 1, 0, 0], [1, 1, 1]),
    "none": ({"num_sparse_decoder_layers": 4}, [0, 1, 0, 1], [0, 0, 0]),
    "steps": ({"encoder_sparse_step": 3, "decoder_sparse_step": 2}, [0, 1, 0, 0], [0, 1, 0]),
}


def published(kind, folder):
    """A small SwitchTransformers with all its weights moved, as it is written into a folder."""
    torch.manual_seed(0)
    config = transformers.SwitchTransformersConfig(**SMALL | KINDS[kind][0])
    theirs = transformers.SwitchTransformersForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    theirs.save_pretrained(folder)
    return theirs


def some(*shape, most=50):
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_published_model_says_what_transformers_says(kind, tmp_path):
    """Sequences are longer than the farthest distance, and their experts full, in all but one."""
    theirs, ours = published(kind, tmp_path), load(tmp_path)
    tokens, decoder_tokens = some(2, 30), some(2, 23)
    expected = theirs(tokens, decoder_input_ids=decoder_tokens, use_cache=False).logits
    found = ours(tokens, decoder_tokens)
    assert expected.abs().max() > 1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    sparse = [
        [isinstance(block.mlp, SequenceMLP) for block in stack.blocks]
        for stack in (ours.encoder, ours.decoder)
    ]
    assert sparse == list(KINDS[kind][1:])
    assert len(ours.routed()) == sum(map(sum, sparse))
    for routed in ours.routed():
        assert routed.routes.kept.all() == (kind == "nothing dropped")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "steps"])
def test_a_config_without_steps_means_the_same_layers(kind, tmp_path):
    published(kind, tmp_path)
    expected, file = load(tmp_path).config, tmp_path / "config.json"
    said = json.loads(file.read_text())
    del said["encoder_sparse_step"], said["decoder_sparse_step"]
    file.write_text(json.dumps(said))
    assert load(tmp_path).config == expected


@torch.no_grad()
def test_experts_are_full_for_each_sequence_alone():
    torch.manual_seed(2)
    layer, x = SequenceMLP(6, 10, 4, capacity=2).double(), torch.randn(3, 8, 6).double()
    factor = 1.0
    assert capacity(8, 4, factor) == 2
    wanted = [reference.switch(one, layer.router, layer.up, layer.down, 1, factor) for one in x]
    torch.testing.assert_close(layer(x), torch.stack(wanted))
    assert 0 < (~layer.routed.routes.kept).sum() == (layer(x) == 0).all(-1).sum()
    assert layer.routed.choices.sum() == 24
    model = Switch(SwitchConfig(capacity=1, width=8, hidden=9)).double()
    read, write = some(3, 9), some(3, 7)
    together = model(read, write)
    for b in range(3):
        torch.testing.assert_close(model(read[b : b + 1], write[b : b + 1])[0], together[b])


def test_every_distance_has_transformers_bucket():
    ahead = torch.arange(-300, 301)
    for buckets, farthest in ((32, 128), (8, 20), (4, 3)):
        for both in (True, False):
            expected = theirs_.SwitchTransformersAttention._relative_position_bucket(
                ahead, both, buckets, farthest
            )
            assert bucket(ahead, buckets, farthest, both).equal(expected)


@torch.no_grad()
def test_its_balances_are_transformers_for_a_sequence(tmp_path):
    published("", tmp_path)
    ours = load(tmp_path)
    assert ours.balances() == []
    ours(some(1, 30), some(1, 23))
    for routed, found in zip(ours.routed(), ours.balances(), strict=True):
        odds = routed.scores.softmax(-1)[None]
        expected = theirs_.load_balancing_loss_func(odds, odds.argmax(-1))
        torch.testing.assert_close(found, expected)
        assert found != 1


def test_it_learns_to_name_the_largest_token_so_far_with_balanced_experts():
    torch.manual_seed(3)
    config = SwitchConfig(width=24, heads=2, head_width=12, hidden=24, vocab=8, capacity=3)
    model = Switch(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        read, written = torch.randint(8, (2, 32, 4))
        largest = torch.maximum(read.amax(1, keepdim=True), written.cummax(1).values)
        loss = cross_entropy(model(read, written).flatten(0, 1), largest.flatten())
        balance = sum(model.balances()) / 2
        (loss + 0.1 * balance).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.3  # guessing has log 8 = 2.1
    assert balance < 1.2


def test_the_kernel_takes_the_place_of_the_reference():
    torch.manual_seed(4)
    config = SwitchConfig(width=16, hidden=16, vocab=9, capacity=3)
    model, fast = Switch(config), Switch(config, kernels.mlp)
    fast.load_state_dict(model.state_dict())
    tokens = some(2, 7, most=9)
    torch.testing.assert_close(fast(tokens, tokens), model(tokens, tokens), rtol=1e-4, atol=1e-4)


def test_it_is_read_in_its_dtype_and_routes_in_fp32(tmp_path):
    published("", tmp_path)
    weights = {name: x.bfloat16() for name, x in load_file(tmp_path / "model.safetensors").items()}
    weights["lm_head.weight"] = weights["shared.weight"].clone()  # as older files have it
    save_file(weights, tmp_path / "model.safetensors")
    model = load(tmp_path)
    assert model(some(1, 5), some(1, 5)).dtype == torch.bfloat16
    assert all(routed.scores.dtype == torch.float32 for routed in model.routed())


def test_what_is_not_such_a_model_is_named(tmp_path):
    published("", tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    weights = load_file(tmp_path / "model.safetensors")

    def refused(message, changed=(), without="", **added):
        (tmp_path / "config.json").write_text(json.dumps(said | dict(changed)))
        kept = {name: x for name, x in (weights | added).items() if name != without}
        save_file(kept, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            load(tmp_path)

    for name, value in {
        "model_type": "t5",
        "dense_act_fn": "gelu",
        "is_gated_act": True,
        "num_selected_experts": 2,
        "router_bias": True,
        "router_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }.items():
        refused(f"{name} is {value!r} in config.json, must be ", {name: value})
    refused("expert_capacity is 0, must be a whole number of at least 1", {"expert_capacity": 0})
    refused("buckets is 2, must be .* at least 4", {"relative_attention_num_buckets": 2})
    refused("farthest is 4, must be .* at least 5", {"relative_attention_max_distance": 4})
    refused(r"has no weight encoder\.blocks\.4\.", {"num_layers": 5})
    refused(r"has a weight encoder\.blocks\.3\.", {"num_layers": 3})
    refused(r"mlp\.router is \[24, 4\] in .* must be \[24, 5\]", {"num_experts": 5})
    refused("has no weight decoder.blocks.0.mlp.up.weight", {"decoder_sparse_step": 0})
    refused(r"has no weight embedding\.weight", without="shared.weight")
    first = "encoder.block.1.layer.1.mlp.experts.expert_0.wi.weight"
    refused(r"encoder\.blocks\.1\.mlp\.up has experts \[1, 2, 3\] of shapes", without=first)
    refused(r"shapes \[\(24, 9\), \(24, 20\)\]", **{first: torch.zeros(9, 24)})
    refused(
        "has a weight encoder.block.1.layer.2.x.weight",
        **{"encoder.block.1.layer.2.x.weight": torch.zeros(1)},
    )
    refused("lm_head.weight is not shared.weight", **{"lm_head.weight": torch.zeros(50, 24)})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": said["model_type"]}))
    with pytest.raises(ValueError, match=r"config\.json has no num_layers"):
        load(tmp_path)
