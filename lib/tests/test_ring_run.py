"""A sequence over ranks: the whole's values and gradients, the plan's bytes, no more alive."""

import re
from itertools import product

import pytest
import torch

from weft.meter import live, traffic
from weft.plan import ring as plan
from weft.plan.ring import LAYOUTS, METHODS
from weft.ref.attention import attention, merge
from weft.run import ring
from weft.run.ring.blocks import begin, merge_
from weft.run.world import launch

B, K = 2, 5
HOWS = (
    {},
    {"causal": True, "scale": 0.3},
    {"causal": True, "window": 4},
    {"causal": True, "documents": (0, 6, 7)},
    {"documents": (0, 9)},
)


def drawn(T, H, G, V):
    """q, k, v and the gradient of o, whole, the same on every rank."""
    dice = torch.Generator().manual_seed(T)
    widths = (H, K), (G, K), (G, V), (H, V)
    q, k, v, do = (torch.randn(B, T, *w, generator=dice, dtype=torch.float64) for w in widths)
    return [x.requires_grad_() for x in (q, k, v)], do


def seen(T, causal=False, window=None, documents=(0,), scale=None):
    """True where a query may look."""
    i, j = torch.arange(T)[:, None], torch.arange(T)
    mask = (j <= i) | torch.tensor(not causal)
    if window:
        mask &= i - j < window
    document = torch.bucketize(torch.arange(T), torch.tensor(documents), right=True)
    return mask & (document[:, None] == document)


def gradients(o, inputs, do):
    """Of a sum: torch would load sympy, for seconds, to be given do."""
    return torch.autograd.grad((o * do).sum(), inputs)


def compared(world, T, layout, method, how, kernel):
    """How far values and gradients are from the whole's, and bytes sent with what the plan says.

    Where all is visible, ranks are told how many tokens there are.
    """
    n = world.size
    H, G, V = (6 * n, 2 * n, K) if method == "ulysses" else (6, 2, 3 if kernel else K)
    if "documents" in how:
        how = how | {"documents": (*how["documents"], T)}
    whole, do = drawn(T, H, G, V)
    want = attention(*whole, mask=seen(T, **how), scale=how.get("scale"))
    wanted = want, *gradients(want, whole, do)
    mine = [ring.shard(x, world, layout) for x in whole]
    with traffic() as forward:
        given = how if how else {"tokens": T}
        o = ring.attention(*mine, world, layout=layout, method=method, kernel=kernel, **given)
    with traffic() as backward:
        found = o, *gradients(o, mine, ring.shard(do, world, layout))
    pairs = zip(found, wanted, strict=True)
    wrong = [(a - ring.shard(b, world, layout)).abs().max() for a, b in pairs]
    counted = [sum(wire.bytes.values()) for wire in (forward, backward)]
    limits = {"rank": world.rank, "layout": layout, "causal": how.get("causal", False)}
    limits |= {name: how[name] for name in ("window", "documents") if name in how}
    told = [plan.sent(T, n, H, G, K, method, 8, b, B=B, V=V, **limits) for b in (False, True)]
    return max(wrong).item(), counted, told


def all_compared(world, cases):
    return [compared(world, *case) for case in cases]


@pytest.mark.parametrize(
    ("n", "T", "hows"),
    [(1, 11, HOWS[3:4]), (2, 24, HOWS[:2]), (3, 17, HOWS), (4, 24, HOWS), (5, 13, HOWS[1:3])],
)
def test_values_gradients_and_bytes_are_those_of_the_whole_and_the_plan(n, T, hows):
    cases = list(product([T], LAYOUTS, METHODS, hows, [None]))
    cases += list(product([T], LAYOUTS[1:2], METHODS, hows[1:4], [attention]))
    for results in launch(all_compared, n, cases):
        for case, (wrong, counted, told) in zip(cases, results, strict=True):
            assert wrong < 1e-12, case
            assert counted == told, case


def test_parts_are_merged_as_the_reference_does():
    dice = torch.Generator().manual_seed(0)
    parts = [(torch.randn(2, 3, 4, 5, generator=dice), 30 * torch.randn(2, 3, 4, generator=dice))
             for _ in range(3)]  # fmt: skip
    o, lse = begin(torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 2, 5))
    want = parts[0]
    merge_(o, lse, *parts[0])
    for part in parts[1:]:
        want = merge(*want, *part)
        merge_(o, lse, *part)
    torch.testing.assert_close((o, lse), want)


def through(world, layout, method):
    """The whole's gradients by shard, attention and unshard, and half precision."""
    world = world.grid(d=2, c=2).axis("c")
    (q, k, v), do = drawn(15, 4, 4, K)
    parts = [ring.shard(x, world, layout) for x in (q, k, v)]
    o = ring.unshard(ring.attention(*parts, world, True, None, layout, method), world, layout)
    found = gradients(o, (q, k, v), do)
    want = attention(q, k, v, causal=True)
    torch.testing.assert_close((o, *found), (want, *gradients(want, (q, k, v), do)))
    half = [x.detach().bfloat16().requires_grad_() for x in parts]
    o = ring.attention(*half, world, True, None, layout, method)
    assert o.dtype == torch.bfloat16
    exact = ring.shard(want, world, layout)
    torch.testing.assert_close(o.double(), exact, rtol=0.02, atol=0.02)
    assert all(x.dtype == torch.bfloat16 for x in torch.autograd.grad(o.sum(), half))
    ids = torch.arange(30).view(2, 15)
    assert ring.unshard(ring.shard(ids, world, layout, -1), world, layout, -1).equal(ids)
    return True


@pytest.mark.parametrize(("layout", "method"), [*zip(LAYOUTS, METHODS, strict=True)])
def test_shard_and_unshard_carry_whole_gradients_on_an_axis_of_a_grid(layout, method):
    assert all(launch(through, 4, layout, method))


def kept(world, method, G, dtype):
    """Bytes alive at the most, forward and backward, and what the plan says."""
    c, H, V = 96, 4, 16
    q, k, v = (torch.randn(1, c, h, V, dtype=dtype, requires_grad=True) for h in (H, G, G))
    with live() as forward:
        o = ring.attention(q, k, v, world, causal=True, method=method)
    total = o.sum()
    with live() as backward:
        torch.autograd.grad(total, (q, k, v))
    told = [
        plan.alive(c * world.size, world.size, H, G, V, method, q.element_size(), b)
        for b in (False, True)
    ]
    return [forward.peak, backward.peak], told


def all_kept(world):
    cases = product(METHODS, (2, 4), (torch.float32, torch.bfloat16))
    cases = (case for case in cases if case[0] != "ulysses" or not case[1] % world.size)
    return {case: kept(world, *case) for case in cases}


def test_no_more_is_alive_than_the_plan_says_and_a_ring_has_two_blocks_however_many_ranks():
    found = {n: launch(all_kept, n) for n in (1, 2, 3, 4)}
    for ranks in found.values():
        for cases in ranks:
            for case, (peaks, told) in cases.items():
                assert all(0.4 * b < a <= b for a, b in zip(peaks, told, strict=True)), case
    case = "ring", 4, torch.float32
    assert found[4][0][case][0][0] == found[3][0][case][0][0]


def test_a_window_and_documents_silence_the_ring():
    wires = launch(silence, 4)
    assert [w["window"] for w in wires] == [1, 1, 1, 0]  # to the next rank alone
    assert [w["documents"] for w in wires] == [0, 0, 0, 0]


def silence(world):
    q, k, v = (torch.randn(1, 4, 1, 8) for _ in range(3))
    sends = {}
    for name, given in {"window": 3, "documents": (0, 4, 8, 12, 16)}.items():
        with traffic() as wire:
            ring.attention(q, k, v, world, True, layout="contiguous", **{name: given})
        sends[name] = wire.calls["send"]
    return sends


# --- decoding -------------------------------------------------------------------------------------


def decoded(world, kernel=None):
    """A token over a cache in parts of any length: how far off, and bytes with the plan's."""
    n, rank = world.size, world.rank
    dice = torch.Generator().manual_seed(3)
    lengths = [7 * r % 5 for r in range(1, n + 1)]  # none on rank 4
    q = torch.randn(B, 1, 6, K, generator=dice, dtype=torch.float64)
    k, v = (torch.randn(B, sum(lengths), 2, K, generator=dice, dtype=torch.float64) for _ in "kv")
    mine = [x.split(lengths, 1)[rank] for x in (k, v)]
    with traffic() as wire:
        o = ring.decode(q, *mine, world, kernel=kernel)
    told = plan.sent_in_decode(n, 6, K, B, 8, rank)
    return (o - attention(q, k, v)).abs().max().item(), sum(wire.bytes.values()), told


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_a_token_is_decoded_over_a_cache_in_parts(n):
    for wrong, counted, told in launch(decoded, n, attention if n == 3 else None):
        assert wrong < 1e-14 and counted == told


# --- bad input ------------------------------------------------------------------------------------


def refused(world, call, odd):
    """What each rank is told when rank `odd`, or with None every rank, calls it wrongly."""
    with pytest.raises(ValueError) as told:
        call(world, odd is None or world.rank == odd)
    q = torch.ones(1, 2, 2, 4)  # and all are still in step
    ring.attention(q, q, q, world)
    return str(told.value)


def rows(c, heads=2, width=4):
    return torch.ones(1, c, heads, width)


def attend(world, q, k=None, **how):
    ring.attention(q, q if k is None else k, q if k is None else k, world, **how)


def few(world, wrong):
    ring.shard(rows(2 if wrong else 3), world)


def empty(world, wrong):
    attend(world, rows(0 if wrong else 2))


def shares(world, wrong):
    attend(world, rows(5 if wrong else 2))


def heads(world, wrong):
    attend(world, rows(2, 6), rows(2, 2 if wrong else 3), method="ulysses")


def layouts(world, wrong):
    attend(world, rows(2), layout="folded" if wrong else "zigzag")


def methods(world, wrong):
    attend(world, rows(2), method="tree" if wrong else "ring")


def causals(world, wrong):
    attend(world, rows(2), causal=wrong)


def trained(world, wrong):
    attend(world, rows(2).requires_grad_(wrong))


def dtypes(world, wrong):
    attend(world, rows(2).double() if wrong else rows(2))


def all_tokens(world, wrong):
    attend(world, rows(2), tokens=12 if wrong else None)


def document_ends(world, wrong):
    attend(world, rows(2), documents=[0, 5])


def whole_parts(world, wrong):
    ring.unshard(rows(4 if wrong else 2), world)


def caches(world, wrong):
    ring.decode(rows(1), rows(0), rows(0), world)


def groups(world, wrong):
    attend(torch.distributed.GroupMember.NON_GROUP_MEMBER, rows(2))


BAD = {
    (few, None): "n is 3, must be at most T = 2: a token for each rank",
    (empty, 1): r"q has shape \[1, 0, 2, 4\], must be .*",
    (shares, 1): r"q has T = 9 tokens, \[2, 5, 2\] .*: must be \[3, 3, 3\] with layout 'zigzag'",
    (heads, 2): r"G is 2 kv heads, must be a multiple of n = 3 ranks for ulysses.*",
    (layouts, 0): r"layout is 'folded', must be one of contiguous, zigzag, striped.*",
    (methods, 1): r"method is 'tree', must be one of ring, ulysses, gather.*",
    (causals, 2): r"causal is False on rank 0 and True on rank 2, must be the same on every rank",
    (trained, 1): r"whether q, k or v requires its gradient is False on rank 0 and True on .*",
    (dtypes, 1): r"q's dtype is torch.float32 on rank 0 and torch.float64 on rank 1, must be .*",
    (all_tokens, None): "tokens is 12, of which rank . has 4 with 'zigzag', must be those of q.*",
    (document_ends, None): "documents end at 5, must end at T = 6",
    (whole_parts, 2): r"x has T = 8 tokens, \[2, 2, 4\] of them on each rank: must be .*",
    (caches, None): "k has 0 tokens on all ranks, must have at least one on one of them",
    (groups, None): "world is a group without this rank, must be a World or a ProcessGroup .*",
}


def all_refused(world, cases):
    return [refused(world, *case) for case in cases]


def test_what_is_wrong_is_said_on_all_ranks_and_nothing_hangs():
    for told in launch(all_refused, 3, list(BAD), timeout=60):
        for says, words in zip(BAD.values(), told, strict=True):
            assert re.fullmatch(says, words)
