"""RetNet: its forms agree, it decodes as it trains, and it says what torchscale's formulas say."""

import json
from math import sqrt

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import gelu, silu

from weft.nn.retention import FORMS, MultiScaleRetention, RetNet, RetNetConfig, load

FIELDS = {
    "decoder_embed_dim": 12,
    "decoder_value_embed_dim": 18,
    "decoder_retention_heads": 3,
    "decoder_ffn_embed_dim": 10,
    "decoder_layers": 2,
    "vocab_size": 11,
    "dropout": 0.1,  # a field that changes nothing here
}


def layer(eps=1e-6, scale=1.0):
    torch.manual_seed(0)
    made = MultiScaleRetention(12, 3, 18, eps).double()
    for each in made.parameters():
        each.data.mul_(scale)
    return made


def model(**fields):
    torch.manual_seed(0)
    return RetNet(RetNetConfig.of(FIELDS | fields)).double()


@torch.no_grad()
@pytest.mark.parametrize("scale", [1e-3, 8.0])  # beside an epsilon of 1e-6; and sums above 1
def test_all_forms_are_one_function_whatever_the_length_and_chunk(scale):
    each, x = layer(scale=scale), torch.randn(2, 13, 12).double()
    said, (end, state) = each(x, final=True)
    assert end == 13 and state.shape == (2, 3, 4, 7)
    for options in [
        {"form": "recurrent"},
        *({"form": "chunked", "chunk": c} for c in (1, 4, 5, 64)),
    ]:
        o, (end, S) = each(x, final=True, **options)
        torch.testing.assert_close(o, said, rtol=1e-9, atol=1e-12 * scale)
        torch.testing.assert_close(S, state)
        assert end == 13
    for cut, first, then in [(1, "recurrent", "chunked"), (6, "chunked", "parallel")]:
        head, kept = each(x[:, :cut], first, final=True)
        tail = each(x[:, cut:], then, kept, chunk=3)
        torch.testing.assert_close(torch.cat((head, tail), 1), said, rtol=1e-9, atol=1e-12)


def test_gradients_of_the_forms_are_equal():
    each, x = layer(scale=4.0), torch.randn(1, 7, 12).double()
    grads = {}
    for form in FORMS:
        each.zero_grad()
        each(x, form, chunk=3).square().sum().backward()
        grads[form] = [p.grad.clone() for p in each.parameters()]
    for other in ("recurrent", "chunked"):
        torch.testing.assert_close(grads[other], grads["parallel"], rtol=1e-8, atol=1e-10)


@torch.no_grad()
def test_the_model_decodes_what_it_says_at_once():
    each = model()
    tokens = torch.randint(11, (2, 9))
    said = each(tokens)
    scores, state = each(tokens[:, :4], "chunked", final=True, chunk=3)
    steps = []
    for token in tokens[:, 4:].unbind(1):
        score, state = each.step(token, state)
        steps.append(score)
    torch.testing.assert_close(torch.stack(steps, 1), said[:, 4:])
    torch.testing.assert_close(scores, said[:, :4])
    torch.testing.assert_close(each.step(tokens[:, 0])[0], said[:, 0])


@torch.no_grad()
def test_half_precision_sums_in_fp32():
    each, x = layer(scale=30.0), 30 * torch.randn(1, 40, 12).double()
    wanted, (_, state) = each(x, final=True)
    assert state.abs().max() > torch.finfo(torch.float16).max
    for form in FORMS:
        said, (_, S) = each.half()(x.half(), form, final=True, chunk=16)
        assert said.dtype == torch.float16 and S.dtype == torch.float32
        torch.testing.assert_close(said.double(), wanted, rtol=0.02, atol=0.02 * wanted.std())


# --- torchscale's formulas, token by token and head by head ---------------------------------------


def turned(x, position):
    """One vector, each pair of neighbours turned as a complex number."""
    speeds = torch.tensor([10000 ** (-i / max(len(x) // 2 - 1, 1)) for i in range(len(x) // 2)])
    pairs = torch.view_as_complex(x.reshape(-1, 2).contiguous())
    angles = torch.polar(torch.ones_like(speeds), speeds * position).to(pairs.dtype)
    return torch.view_as_real(pairs * angles).flatten()


def oracle_heads(x, w, H):
    """q, k and v of one sequence, [T] rows of [H] vectors; keys are scaled."""
    q, k, v = (x @ w[f"{name}_proj.weight"].T for name in "qkv")
    k = k * (x.shape[1] // H) ** -0.5
    rows = [[each.view(H, -1) for each in part] for part in (q, k, v)]
    for part in rows[:2]:
        part[:] = [[turned(y, n) for y in row] for n, row in enumerate(part)]
    return rows


def oracle_parallel(q, k, v, decay, chunk=None):
    """Its parallel form: a row of the mask over the root of its sum, the row of scores over
    the larger of 1 and the absolute value of its sum.
    """
    said = []
    for n in range(len(q)):
        mask = [decay ** (n - m) for m in range(n + 1)]
        row = [each / sqrt(sum(mask)) * q[n] @ k[m] for m, each in enumerate(mask)]
        over = max(1.0, abs(float(sum(row))))
        said.append(sum(each / over * v[m] for m, each in enumerate(row)))
    return said


def oracle_recurrent(q, k, v, decay, chunk=None):
    """Its decoding: the state is [V, K] and carries the root of the sum of decays."""
    said, scale, state = [], 0.0, 0.0
    for q_n, k_n, v_n in zip(q, k, v, strict=True):
        before, scale = scale, scale * decay + 1
        state = state * sqrt(before) * decay / sqrt(scale) + torch.outer(v_n, k_n) / sqrt(scale)
        said.append(state @ q_n)
    return said


def oracle_chunks(q, k, v, decay, chunk):
    """Its chunks: each side divided by a scale of its own, then both by the larger."""
    state, over, said = torch.zeros(len(k[0]), len(v[0])).double(), 1.0, []
    whole = sum(decay**i for i in range(chunk))
    for first in range(0, len(q), chunk):
        keys = range(first, min(first + chunk, len(q)))
        for i, n in enumerate(keys):
            root = sqrt(sum(decay**j for j in range(i + 1)))
            row = [decay ** (n - m) / root * q[n] @ k[m] for m in keys if m <= n]
            inner = max(1.0, float(sum(map(abs, row))))
            inside = sum(score / inner * v[m] for score, m in zip(row, keys, strict=False))
            outside = (q[n] * decay ** (i + 1) * whole / root) @ (state / over)
            most = max(inner, over)
            said.append(inside * inner / most + outside * over / most)
        new = sum(
            torch.outer(k[m], v[m]) * decay ** (chunk - 1 - j) / whole for j, m in enumerate(keys)
        )
        state = state * decay**chunk + new
        over = max(1.0, float(state.abs().sum(0).max()))
    return said


def oracle_retention(x, w, H, eps, form, chunk=None):
    q, k, v = oracle_heads(x, w, H)
    heads = []
    for h in range(H):
        rows = ([each[h] for each in part] for part in (q, k, v))
        o = torch.stack(form(*rows, 1 - 2.0 ** (-5 - h), chunk))
        heads.append(o / (o.square().mean(-1, keepdim=True) + eps).sqrt())
    return (silu(x @ w["g_proj.weight"].T) * torch.cat(heads, -1)) @ w["out_proj.weight"].T


@torch.no_grad()
@pytest.mark.parametrize(
    ("form", "eps", "chunk"),
    [(oracle_parallel, 1e-2, None), (oracle_recurrent, 1e-300, None), (oracle_chunks, 1e-300, 4)],
)
def test_the_layer_is_torchscales_at_any_epsilon_and_its_other_forms_without_one(form, eps, chunk):
    each, x = layer(eps, scale=5.0), torch.randn(12, 12).double()
    wanted = oracle_retention(x, each.state_dict(), 3, eps, form, chunk)
    torch.testing.assert_close(each(x[None])[0], wanted, rtol=1e-5, atol=1e-7)


def oracle_model(tokens, w, config, form=oracle_parallel, chunk=None):
    """RetNetDecoder for one sequence in float64."""

    def norm(name, x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w[f"{name}.weight"]

    before, L = config.get("decoder_normalize_before", True), config["decoder_layers"]
    alpha = (2 * L) ** 0.25 if config.get("deepnorm") else 1.0
    x = w["embed_tokens.weight"][tokens]
    x = x if config.get("no_scale_embedding", True) else x * sqrt(x.shape[-1])
    x = norm("layernorm_embedding", x) if config.get("layernorm_embedding") else x
    for i in range(L):
        at = f"layers.{i}."
        mine = {name.removeprefix(at + "retention."): y for name, y in w.items()}
        for name, part in {
            "retention_layer_norm": lambda y, m=mine: oracle_retention(
                y, m, config["decoder_retention_heads"], 1e-6, form, chunk
            ),
            "final_layer_norm": lambda y, a=at: (
                (gelu(y @ w[a + "ffn.fc1.weight"].T) * (y @ w[a + "ffn.gate.weight"].T))
                @ w[a + "ffn.fc2.weight"].T
            ),
        }.items():
            y = part(norm(at + name, x) if before else x)
            x = x * alpha + y
            x = x if before else norm(at + name, x)
    x = norm("layer_norm", x) if before else x
    return x @ w["output_projection.weight"].T


POST = {"decoder_normalize_before": False, "deepnorm": True, "layernorm_embedding": True}
TIED = {"share_decoder_input_output_embed": True, "no_scale_embedding": False}


@torch.no_grad()
@pytest.mark.parametrize("fields", [{}, POST, TIED], ids=["pre", "post", "tied"])
def test_a_folder_is_loaded_and_says_what_torchscale_says(tmp_path, fields):
    config = FIELDS | fields
    saved = model(**fields).state_dict()
    for name, x in saved.items():  # weights of norms are not all 1, and no other matrix is small
        saved[name] = x + 0.3 * torch.randn_like(x)
    if "share_decoder_input_output_embed" in fields:
        saved["output_projection.weight"] = saved["embed_tokens.weight"]
    file = saved | {"retnet_rel_pos.decay": (1 - 2.0 ** (-5 - torch.arange(3.0))).log()}
    if "share_decoder_input_output_embed" in fields:
        del file["output_projection.weight"]
    save_file({name: x.float() for name, x in file.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = torch.randint(11, (1, 10))
    wanted = oracle_model(tokens[0], saved, config)
    assert wanted.std() > 0.1
    torch.testing.assert_close(load(tmp_path)(tokens)[0].double(), wanted, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_torchscales_chunks_leave_its_table_in_a_fresh_model_and_ours_do_not():
    """What the chapter says of both: three layers of width 64, 48 tokens in chunks of 16."""
    wide = {"decoder_embed_dim": 64, "decoder_value_embed_dim": 128, "decoder_ffn_embed_dim": 128}
    config = FIELDS | wide | {"decoder_retention_heads": 4, "decoder_layers": 3, "vocab_size": 100}
    each, tokens = model(**config), torch.randint(100, (1, 48))
    each.embed_tokens.weight.normal_()
    gaps = []
    for larger in (1, 6):
        for name, x in each.named_parameters():
            if "retention." in name and "_proj" in name:
                x.mul_(larger)
        w = each.state_dict()
        table = oracle_model(tokens[0], w, config)
        chunks = oracle_model(tokens[0], w, config, oracle_chunks, 16)
        gaps.append(float((chunks - table).abs().max() / table.std()))
        for form in FORMS:
            torch.testing.assert_close(each(tokens, form)[0], table, rtol=0, atol=1e-5)
    assert 0.01 < gaps[0] < 0.02 and 500 < gaps[0] / gaps[1] < 2000


def test_what_cannot_be_loaded_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FIELDS))
    wrong = {"retnet_rel_pos.decay": torch.tensor([-0.5, -0.1, 0])}
    save_file(wrong, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"retnet_rel_pos.decay is \[-0.5, .*RetNet's decays"):
        load(tmp_path)
    save_file({"layer_norm.weight": torch.ones(12)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"has no weight embed_tokens.weight"):
        load(tmp_path)
    with pytest.raises(ValueError, match="moe_freq is 2, must be 0 or absent"):
        RetNetConfig.of(FIELDS | {"moe_freq": 2})
    with pytest.raises(ValueError, match="vocab_size is absent"):
        RetNetConfig.of({})


def test_sizes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="width is 9, must be a multiple of 2 heads, 6"):
        MultiScaleRetention(9, 3)
    with pytest.raises(ValueError, match="value_width is 13, must be a multiple of heads = 3"):
        MultiScaleRetention(12, 3, 13)
    with pytest.raises(ValueError, match="form is 'scan', must be one of parallel, "):
        layer()(torch.zeros(1, 2, 12).double(), "scan")
