"""The benchmark of windows at a small size: what it compares, not how fast that is."""

from functools import partial
from itertools import product

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from weft import cli
from weft.bench.clock import OneDevice
from weft.bench.goals import GOALS
from weft.bench.jobs import BenchRun
from weft.bench.sparse import on_gpu
from weft.bench.sparse.on_gpu import DENSE, FLEX, FULL, LISTS, OURS, WAYS, WINDOW, WindowSizes
from weft.plan.sparse import pairs
from weft.ref.attention import attention

TINY = WindowSizes((64, 128), (16, 100), tokens=128, hidden=16, width=16)


def test_everyone_is_timed_and_rates_count_the_pairs_that_are_seen(monkeypatch, capsys):
    def masked(T, window, device):  # FlexAttention has no gradients on a processor
        back = torch.arange(T).unsqueeze(1) - torch.arange(T)
        return partial(on_gpu.sdpa, (back >= 0) & (back < window))

    monkeypatch.setattr(on_gpu, "flex", masked)
    job = WINDOW._replace(on=("cpu",))
    record = job.record(BenchRun(given=OneDevice("cpu", 0, 2)), sizes=TINY)
    assert record.topic == "sparse" and "1 heads of width 16, 128 tokens" in record.title
    for way, products in WAYS.items():
        for T, window, B in ((64, 16, 2), (128, 16, 1), (128, 100, 1)):
            name = on_gpu.size(way, T, window)
            who = {r.who for r in record.results if r.name == name}
            shares = {f"{OURS} / {DENSE}", f"{OURS} / {FLEX}"}
            assert who >= {OURS, LISTS, DENSE, "sdpa, mask"} | shares, who
            ours, dense = (record.result(name, one) for one in (OURS, DENSE))
            times = record.result(name, f"{OURS} / {DENSE}").samples
            seen = pairs(T, window - 1, causal=True)
            for ratio, a, b in zip(times, ours.samples, dense.samples, strict=True):
                assert ratio == a / b and a > 0 and 4 * products * B * seen * 16 / a > 0
    assert not {r.name for r in record.results} & {on_gpu.size(way, 64, 100) for way in WAYS}
    assert "flash does not run here" in capsys.readouterr().err  # it needs a GPU


@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
@pytest.mark.parametrize(("T", "window"), [(512, 1), (512, 128), (512, 200), (300, 150)])
def test_flex_is_given_the_blocks_that_torch_finds(T, window):
    def seen(b, h, i, j):
        return (i >= j) & (i - j < window)

    ours = on_gpu.block_mask(T, window, torch.device("cpu"))
    theirs = create_block_mask(seen, None, None, T, T, device="cpu")
    assert torch.equal(ours.to_dense(), theirs.to_dense()) and ours.shape == theirs.shape
    for count in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(ours, count), getattr(theirs, count)), count
    q = torch.randn(1, 1, T, 16, generator=torch.Generator().manual_seed(1))
    back = torch.arange(T).unsqueeze(1) - torch.arange(T)
    x = q.transpose(1, 2)
    wanted = attention(x, x, x, mask=(back >= 0) & (back < window)).transpose(1, 2)
    torch.testing.assert_close(flex_attention(q, q, q, block_mask=ours), wanted)


def test_who_is_wrong_is_named_and_who_does_not_run_is_left_out(capsys):
    *qkv, do = on_gpu.inputs(128, 16, 128, 16, "cpu")
    right = on_gpu.contest(128, 20, do.device)[LISTS]
    assert on_gpu.accepted("another", 20, right, qkv, do)
    with pytest.raises(AssertionError, match=r"another is wrong by .* window 21"):
        on_gpu.accepted("another", 21, right, qkv, do)
    assert not on_gpu.accepted("another", 20, lambda q, k, v: 1 / 0, qkv, do)
    assert "another does not run here: division by zero" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        on_gpu.accepted(LISTS, 20, lambda q, k, v: 1 / 0, qkv, do)


def test_the_last_rows_are_those_of_the_whole():
    *qkv, do = (x.detach().double() for x in on_gpu.inputs(64, 16, 64, 16, "cpu"))
    qkv = [x.requires_grad_() for x in qkv]
    back = torch.arange(64).unsqueeze(1) - torch.arange(64)
    o = attention(*qkv, mask=(back >= 0) & (back < 20))
    whole = (o, *torch.autograd.grad(o, qkv, do))
    for part, every in zip(on_gpu.by_definition(qkv, do, 20, 30), whole, strict=True):
        torch.testing.assert_close(part, every[:, -30:])


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is missing without a GPU")
def test_without_a_gpu_it_says_so(tmp_path, capsys):
    words = ["bench", "sparse", "--only", "sparse-window", "--out", str(tmp_path)]
    assert cli.main(words) != 0
    assert "this needs a GPU" in capsys.readouterr().err


def test_goals_ask_for_sizes_that_are_measured():
    asked = [goal for goal in GOALS if goal.record == WINDOW.name]
    names = {on_gpu.size(*case) for case in product(WAYS, FULL.lengths, FULL.windows)}
    assert len(asked) == 4 and {goal.size for goal in asked} <= names
    assert {goal.over for goal in asked} == {FLEX, DENSE}
