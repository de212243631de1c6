"""Layouts after Longformer, by what must hold of them, and by definition, query for query."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from weft.kernels.sparse import block_sparse as along_lists
from weft.ref.attention import attention
from weft.ref.sparse import bigbird, block_sparse, dsa, moba, nsa, sinks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
T, BLOCK, H, G, K = 29, 4, 4, 2, 8  # the last block has one token
J = 12  # so many heads of an index that hardly any two tokens tie, at relu's 0 in all of them
COUNT = -(-T // BLOCK)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def qk(seed=0):
    return drawn(1, T, H, K, seed=seed), drawn(1, T, G, K, seed=seed + 1)


def index(seed=0):
    shapes = (1, T, J, 5), (1, T, 5), (1, T, J)
    return tuple(drawn(*shape, seed=seed + i) for i, shape in enumerate(shapes))


CAUSAL = {
    "sinks": lambda: sinks(COUNT),
    "moba": lambda: moba(*qk(), BLOCK, 2),
    "nsa": lambda: nsa(*qk(), BLOCK, 4),
    "dsa": lambda: dsa(*index(), BLOCK, 3),
}


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_layout_holds_no_future_and_every_token_sees_something(name):
    layout = CAUSAL[name]()
    assert layout.dtype == torch.bool
    assert layout.shape in ((1, COUNT, COUNT), (H, COUNT, COUNT))
    assert not layout.triu(1).any()
    q, k = qk()
    rows = block_sparse(q, k, torch.ones_like(k), layout, BLOCK, causal=True)
    torch.testing.assert_close(rows, torch.ones_like(rows))  # 0 for a token that sees nothing


@pytest.mark.parametrize("name", ["moba", "nsa", "dsa"])
def test_no_choice_depends_on_what_is_later(name):
    q, k = qk()
    iq, ik, w = index()
    for t in reversed(range(BLOCK - 1, T, BLOCK)):
        for x in (q, k, iq, ik, w):
            x[:, t + 1 :] = drawn(*x[:, t + 1 :].shape, seed=t)
        given = {
            "moba": lambda: moba(q, k, BLOCK, 2),
            "nsa": lambda: nsa(q, k, BLOCK, 4),
            "dsa": lambda: dsa(iq, ik, w, BLOCK, 3),
        }
        rows = slice(0, t // BLOCK + 1)
        assert torch.equal(given[name]()[:, rows], CAUSAL[name]()[:, rows])


@pytest.mark.parametrize("name", ["moba", "nsa", "dsa"])
def test_as_many_as_there_are_give_dense_attention(name):
    q, k = qk()
    layout = {
        "moba": lambda: moba(q, k, BLOCK, COUNT),
        "nsa": lambda: nsa(q, k, BLOCK, COUNT),
        "dsa": lambda: dsa(*index(), BLOCK, T),
    }[name]()
    o = block_sparse(q, k, k, layout, BLOCK, causal=True)
    torch.testing.assert_close(o, attention(q, k, k, causal=True))


def test_bigbird_has_a_window_globals_and_so_many_random_blocks_in_a_row():
    layout = bigbird(12, window=1, globals=2, random=3, heads=5, seed=1)
    fixed = bigbird(12, window=1, globals=2, random=0)
    assert layout[:, :2].all()
    assert layout[:, :, :2].all()
    assert (layout | fixed).equal(layout)
    for i in range(2, 12):
        assert fixed[0, i].nonzero().flatten().tolist() == sorted({0, 1, i - 1, i, min(i + 1, 11)})
        more = (layout[:, i] & ~fixed[0, i]).sum(-1)
        assert (more == min(3, 12 - int(fixed[0, i].sum()))).all()
    assert torch.equal(layout, bigbird(12, 1, 2, 3, 5, seed=1))
    assert not torch.equal(layout, bigbird(12, 1, 2, 3, 5, seed=2))
    assert not torch.equal(layout[0], layout[1])
    assert bigbird(3, window=0, globals=0, random=9).all()


def test_sinks_are_the_first_and_a_window_and_a_decoder_keeps_as_many_at_any_length():
    for blocks in (2, 7, 40):
        layout = sinks(blocks, window=3, first=2)[0]
        for i in range(blocks):
            seen = {j for j in range(i + 1) if j < 2 or i - j <= 3}
            assert set(layout[i].nonzero().flatten().tolist()) == seen
        assert layout.sum(1).max() <= 2 + 3 + 1


def test_moba_is_each_query_s_own_block_and_the_best_means_before_it():
    q, k = qk(seed=3)
    want = torch.zeros(H, COUNT, COUNT, dtype=torch.bool)
    for h in range(H):
        for t in range(T):
            own = t // BLOCK
            means = k[0, : own * BLOCK, h // (H // G)].view(own, BLOCK, K).mean(1)
            best = (means @ q[0, t, h]).argsort(descending=True)[:2].tolist()
            want[h, own, [own, *best]] = True
    assert torch.equal(moba(q, k, BLOCK, 3), want)


def test_nsa_is_shared_by_a_group_and_keeps_the_first_and_the_last():
    q, k = qk(seed=4)
    want = torch.zeros(G, COUNT, COUNT, dtype=torch.bool)
    for g in range(G):
        for t in range(T):
            own = t // BLOCK
            kept = {0, own, max(own - 1, 0)}
            if own:
                means = k[0, : own * BLOCK, g].view(own, BLOCK, K).mean(1)
                heads = q[0, t, g * H // G : (g + 1) * H // G]
                weight = (heads @ means.T / K**0.5).softmax(-1).sum(0)
                best = [c for c in weight.argsort(descending=True).tolist() if c not in kept]
                kept |= set(best[: 4 - len({0, own - 1, own})])
            want[g, own, sorted(kept)] = True
    layout = nsa(q, k, BLOCK, 4)
    assert torch.equal(layout, want.repeat_interleave(H // G, 0))


def test_dsa_is_the_blocks_of_the_tokens_with_the_highest_index():
    q, k, w = index(seed=5)
    want = torch.zeros(1, COUNT, COUNT, dtype=torch.bool)
    for t in range(T):
        scores = sum(w[0, t, j] * (k[0, : t + 1] @ q[0, t, j]).relu() for j in range(J))
        for s in scores.argsort(descending=True)[:3].tolist():
            want[0, t // BLOCK, s // BLOCK] = True
    assert torch.equal(dsa(q, k, w, BLOCK, 3), want)


WRONG = {
    "blocks is 0": lambda: bigbird(0),
    "globals is 4, must be at most 3": lambda: bigbird(3, globals=4),
    "first is 4, must be at most 3": lambda: sinks(3, first=4),
    "window is -1": lambda: sinks(3, window=-1),
    "random is -1": lambda: bigbird(3, random=-1),
    "blocks is 4000, heads is 1: 1.6e+07 blocks": lambda: bigbird(4000),
    "top is 0": lambda: moba(*qk(), BLOCK, 0),
    "top is 2, must be at least 3: first is 1 and local is 2": lambda: nsa(*qk(), BLOCK, 2),
    "block is 0": lambda: moba(*qk(), 0, 1),
    "q has 2 sequences, must have 1": lambda: moba(drawn(2, T, H, K), drawn(2, T, G, K), BLOCK, 1),
    "k has 28 keys, must have q's 29": lambda: moba(qk()[0], qk()[1][:, 1:], BLOCK, 1),
    "weights has shape [1, 29, 11], must be [1, 29, 12]": lambda: dsa(
        *index()[:2], index()[2][..., 1:], BLOCK, 1
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_argument_is_named(said):
    with pytest.raises(ValueError) as caught:
        WRONG[said]()
    assert str(caught.value).startswith(said)


def test_choosing_costs_what_is_said():
    """In multiply-adds; the references score later keys too, which a kernel would leave out."""

    def work(face, *given):
        with FlopCounterMode(display=False) as counter:
            face(*given)
        return sum(counter.get_flop_counts()["Global"].values()) // 2

    q, k = drawn(1, 32, H, K), drawn(1, 32, G, K)
    scores = H * 32 * 32 * K  # of dense attention
    assert work(moba, q, k, BLOCK, 2) == work(nsa, q, k, BLOCK, 4) == scores // BLOCK
    of_keys = T * T * J * 5
    weighed = T * T * J
    assert work(dsa, *index(), BLOCK, 3) == of_keys + weighed


@pytest.mark.parametrize("name", [*CAUSAL, "bigbird"])
def test_the_kernel_goes_along_every_one_of_them(name):
    causal = name in CAUSAL
    layout = CAUSAL[name]() if causal else bigbird(COUNT, heads=H)
    q, k = (x.float().to(DEVICE) for x in qk())
    given = q, k, k.flip(-1), layout.to(DEVICE), BLOCK
    found, wanted = (face(*given, causal=causal) for face in (along_lists, block_sparse))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
