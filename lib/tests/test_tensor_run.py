"""Matrices over ranks: one process's numbers and gradients, the plan's bytes, nothing hangs."""

import re
from collections import OrderedDict
from copy import deepcopy
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from weft.kernels import tensor as kernels
from weft.meter import traffic
from weft.nn.transformer import Config, Head, loss, stages
from weft.plan.shape import ModelShape
from weft.plan.tensor import sent, sent_ends, sent_norms, shares
from weft.run.tensor import (
    ColumnLinear,
    RowLinear,
    cross_entropy,
    gradient_norm,
    load,
    parallelize,
    whole,
)
from weft.run.world import launch

RANKS = 1, 2, 3, 4, 5
MODES = [(False, False), (True, False), (True, True)]  # sequence parallel, overlapped
WHOLE = Config(layers=2, width=10, heads=5, vocab=23, seq=60, hidden=17)
EVEN = Config(layers=2, width=12, heads=12, vocab=24, seq=60, hidden=24)


def gap(pairs):
    """The largest difference of any two."""
    return max((a - b).abs().max().item() for a, b in pairs)


def part(x, world, dim):
    return x.tensor_split(world.size, dim)[world.rank]


# --- one matrix -----------------------------------------------------------------------------------


def linears(world, bias, sequence_parallel, overlap):
    """Column, relu, row, beside the same in one process: how far off is everything."""
    torch.manual_seed(0)
    up, down = (nn.Linear(*size, bias=bias).double() for size in ((6, 11), (11, 7)))
    B, T = 2, 4 * world.size
    x, dy = torch.randn(B, T, 6).double(), torch.randn(B, T, 7).double()
    before = [w.clone() for w in (*up.parameters(), *down.parameters())]
    how = world, sequence_parallel, overlap
    column, row = ColumnLinear(up, *how), RowLinear(down, *how)

    def mine(z):
        return part(z, world, 1) if sequence_parallel else z

    own = mine(x).clone().requires_grad_()
    hidden = column(own)
    y = row(hidden.relu())
    y.backward(mine(dy))
    x.requires_grad_()
    between = up(x)
    wanted = down(between.relu())
    wanted.backward(dy)
    pairs = [(y, mine(wanted)), (hidden, part(between, world, -1)), (own.grad, mine(x.grad))]
    pairs += [(column.weight.grad, part(up.weight.grad, world, 0))]
    pairs += [(row.weight.grad, part(down.weight.grad, world, 1))]
    if bias:
        pairs += [(column.bias.grad, part(up.bias.grad, world, 0)), (row.bias.grad, down.bias.grad)]
    assert all(
        a.equal(b) for a, b in zip(before, (*up.parameters(), *down.parameters()), strict=True)
    )
    assert up.weight.requires_grad
    return gap(pairs)


def all_linears(world):
    return [linears(world, bias, *mode) for bias, mode in product((True, False), MODES)]


def entropy(world):
    """Cross-entropy of scores as large as softmax must be careful with, in two dtypes; bytes."""
    torch.manual_seed(0)
    scores = 300 * torch.randn(2, 3, 11).double()
    targets = torch.tensor([[0, 10, 5], [3, 7, 9]])
    own = part(scores, world, -1).clone().requires_grad_()
    with traffic() as wire:
        found = cross_entropy(own, targets, world)
        (3 * found).backward()
    scores.requires_grad_()
    wanted = functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
    (3 * wanted).backward()
    half = cross_entropy(own.detach().bfloat16(), targets, world)
    assert half.dtype == torch.float32 and abs(half - wanted) < 0.01 * wanted
    total = torch.tensor(sum(wire.bytes.values()))
    torch.distributed.all_reduce(total)
    n = world.size
    assert total == n * (2 * (n - 1) * 3 * 6 * 8 / n)
    return gap([(found, wanted), (own.grad, part(scores.grad, world, -1))])


def entropy_in_kernels(world):
    """Fused kernels beside torch's operations, in place and not; all but one rank of -inf."""
    torch.manual_seed(0)
    scores, targets = 5 * torch.randn(2, 3, 11), torch.tensor([[0, 10, 5], [3, 7, 9]])
    own = part(scores, world, -1).contiguous()
    for in_place in (False, True):
        pairs = []
        for kernel in (None, kernels):
            start = own.clone().requires_grad_()
            x = start * 1
            found = cross_entropy(x, targets, world, kernel, in_place)
            (gradient,) = torch.autograd.grad(3 * found, start)
            pairs.append((found, gradient))
            assert torch.equal(x, gradient) == in_place
        torch.testing.assert_close(*pairs)
    nothing = torch.full_like(own, -torch.inf) if world.rank else own
    few = targets % len(scores.tensor_split(world.size, -1)[0][0, 0])
    for kernel in (None, kernels):
        alone = functional.cross_entropy(scores.tensor_split(world.size, -1)[0].flatten(0, 1),
                                         few.flatten())  # fmt: skip
        torch.testing.assert_close(cross_entropy(nothing, few, world, kernel), alone)


@pytest.mark.parametrize("n", [2, 3])
def test_the_loss_in_kernels_is_that_of_torchs_operations(n):
    launch(entropy_in_kernels, n, backend="gloo")


# --- the decoder ----------------------------------------------------------------------------------


def decoder(world, config, count, sequence_parallel, overlap):
    """Everything that a decoder in `count` stages gives, beside one process; bytes of a step."""
    torch.manual_seed(1)
    cuts = stages(config, count)
    alone = nn.ModuleList(cuts).double()
    for norm in (x for x in alone.modules() if isinstance(x, nn.LayerNorm)):
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    module = parallelize(alone, world, sequence_parallel, overlap)
    tokens = torch.randint(config.vocab, (2, config.seq))
    targets = torch.randint(config.vocab, (2, config.seq))
    x = y = tokens
    with traffic() as wire:
        for stage in module:
            x = stage(x)
        found = cross_entropy(x, targets, world)
        found.backward()
    for stage in alone:
        y = stage(y)
    wanted = loss(y, targets)
    wanted.backward()
    pairs = [(found, wanted), (x, part(y, world, -1))]
    gradients = {name: w.grad for name, w in alone.named_parameters()}
    every = [w.grad for w in alone.parameters()]
    pairs += [(gradient_norm(module), torch.nn.utils.get_total_norm(every))]
    state = whole(module)
    assert state.keys() == alone.state_dict().keys()
    assert all(x.equal(state[name]) for name, x in alone.state_dict().items())
    with torch.no_grad():
        for w in module.parameters():
            w.copy_(w.grad)
    pairs += [(x, gradients[name]) for name, x in whole(module).items()]
    load(module, state)
    assert all(x.equal(state[name]) for name, x in whole(module).items())
    return gap(pairs), sum(wire.bytes.values())


def all_decoders(world, cases):
    return [decoder(world, *case) for case in cases]


@pytest.mark.parametrize("t", RANKS)
def test_everything_is_that_of_one_process(t):
    """Heads, hidden columns and words that do not divide by t, and stages with whole sides."""
    counts = (1, [0, 1, 1]) if t < 4 else (2,)
    cases = [(WHOLE, count, *mode) for count in counts for mode in MODES]
    found = launch(everything, t, cases, backend="gloo")
    assert max(max(one) for one in found) < 1e-10


def everything(world, cases):
    return [
        *all_linears(world),
        entropy(world),
        *(wrong for wrong, _ in all_decoders(world, cases)),
    ]


def planned(config, t, sequence_parallel):
    """Bytes of a step by the plan."""
    shape = ModelShape(config.layers, config.width, config.heads, config.vocab, config.seq,
                       hidden=config.hidden)  # fmt: skip
    layers = config.layers * sent(shape, 2, t, sequence_parallel, size=8)
    norms = (config.layers + 1 / 2) * sent_norms(shape, t, size=8) if sequence_parallel else 0
    return layers + norms + sent_ends(shape, 2, t, size=8, wide=8)


@pytest.mark.parametrize("t", [2, 3, 4])
def test_what_is_sent_is_what_the_plan_says(t):
    cases = [(EVEN, count, *mode) for count in (1, 2) for mode in MODES]
    cases = [case for case in cases if t < 4 or case[1] == 1]
    ranks = launch(all_decoders, t, cases, backend="gloo")
    for i, (config, count, cut, _) in enumerate(cases):
        told = [sent_bytes for _, sent_bytes in (found[i] for found in ranks)]
        assert told == [planned(config, t, cut)] * t, (count, cut)


# --- one part, and what is not a part -------------------------------------------------------------


def single(world):
    """A block, and a head, by themselves."""
    torch.manual_seed(2)
    embedding, block, _, head = stages(EVEN, 1)[0].double()
    wrong = []
    x = torch.randn(2, 12, EVEN.width).double()
    for one, mode in product((block, head), MODES):
        cut = parallelize(one, world, *mode)
        a, b = (x.clone().requires_grad_() for _ in range(2))
        found, wanted = cut(a), one(b)
        wanted = part(wanted, world, -1) if isinstance(one, Head) else wanted
        found.square().sum().backward(), one(b).square().sum().backward()
        wrong += [gap([(found, wanted), (a.grad, b.grad)])]
        wanted_state = one.state_dict()
        assert all(x.equal(wanted_state[name]) for name, x in whole(cut).items())
    frozen = embedding.requires_grad_(False)
    assert not any(w.requires_grad for w in parallelize(frozen, world).parameters())
    return max(wrong)


def test_a_part_of_a_stage_may_be_cut_alone():
    assert max(launch(single, 3, backend="gloo")) < 1e-10


def recomputed(world):
    """Bytes of a block whose forward runs again in backward, without and with cut tokens."""
    sent_bytes = []
    for mode in MODES:
        torch.manual_seed(0)
        cut = parallelize(stages(EVEN, 1)[0].double()[1], world, *mode)
        x = torch.randn(2, EVEN.seq, EVEN.width).double().requires_grad_()
        with traffic() as wire:
            checkpoint(cut, x, use_reentrant=False).sum().backward()
        sent_bytes.append(sum(wire.bytes.values()))
    return sent_bytes


def test_recomputing_sends_forward_again():
    shape = ModelShape(1, EVEN.width, EVEN.heads, EVEN.vocab, EVEN.seq, hidden=EVEN.hidden)
    layer = sent(shape, 2, 2, recompute="full", size=8)
    norms = sent_norms(shape, 2, size=8)
    assert launch(recomputed, 2, backend="gloo") == [[layer, layer + norms, layer + norms]] * 2


def on_an_axis(world):
    """Two copies of a block over two ranks each, with other tokens: how far off each is."""
    axis = world.grid(d=2, t=2).axis("t")
    torch.manual_seed(0)
    block = stages(EVEN, 1)[0].double()[1]
    x = torch.randn(2, 2, 6, EVEN.width).double()[world.rank // 2]
    named = nn.Sequential(OrderedDict(first=block, second=deepcopy(block)))
    cut = parallelize(named, axis, True)
    assert whole(cut).keys() == named.state_dict().keys()
    return gap([(parallelize(block, axis, True)(x), block(x))])


def test_a_module_may_lie_on_an_axis_of_a_grid():
    assert max(launch(on_an_axis, 4, backend="gloo")) < 1e-10


# --- bad input ------------------------------------------------------------------------------------


def told(world, name):
    """What this rank is told of a wrong call, which rank 1 makes, or where it says so, all."""
    torch.manual_seed(0)
    odd = world.rank == 1
    decoder, linear = stages(EVEN, 1)[0], nn.Linear(6, 8)
    row = RowLinear(linear, world)
    cut = parallelize(decoder, world, True)
    tokens = torch.zeros(1, 6, dtype=torch.long)
    scores = torch.zeros(1, 6, 12)
    calls = {
        "weights": lambda: ColumnLinear(nn.Linear(6, 8) if odd else linear, world),
        "kind": lambda: ColumnLinear(decoder if odd else linear, world),
        "units": lambda: RowLinear(linear, world, unit=4 if odd else 3),
        "few": lambda: ColumnLinear(nn.Linear(6, 1), world),
        "overlap": lambda: ColumnLinear(linear, world, overlap=True),
        "mode": lambda: parallelize(decoder, world, odd),
        "heads": lambda: parallelize(stages(Config(heads=1), 1)[0], world),
        "words": lambda: parallelize(stages(Config(vocab=1), 1)[0], world),
        "part": lambda: parallelize(nn.Sequential(decoder, linear) if odd else decoder, world),
        "width": lambda: row(torch.ones(2, 4 if odd else 3)),
        "rows": lambda: row(torch.ones(3 if odd else 2, 3)),
        "gradient": lambda: row(torch.ones(2, 3, requires_grad=odd)),
        "time": lambda: cut(tokens[:, :5]),
        "long": lambda: cut(tokens.repeat(1, 11)),
        "tokens": lambda: cut(tokens + odd),
        "unknown": lambda: cut(tokens + 24 * odd),
        "targets": lambda: cross_entropy(scores, tokens + odd, world),
        "beyond": lambda: cross_entropy(scores, tokens + 24, world),
        "shape": lambda: cross_entropy(scores, tokens[:, 1:] if odd else tokens, world),
        "state": lambda: load(cut, {}),
        "group": lambda: parallelize(decoder, 3),
    }
    with pytest.raises(ValueError) as error:
        calls[name]()
    cut(tokens)  # and all are still in step
    return str(error.value)


WRONG = {
    "weights": "the digest of linear's weight is .* on rank 0 and .* on rank 1",
    "kind": "linear is Sequential.* must be of type Linear",
    "units": r"blocks \* unit is 1 \* 4, must divide linear's 6 inputs",
    "few": "linear has 1 outputs for 2 ranks, must have one for each",
    "overlap": "overlap is True, must be False without sequence_parallel",
    "mode": "sequence_parallel is False on rank 0 and True on rank 1",
    "heads": r"module's 1 has 1 heads, must have one for each of 2 ranks",
    "words": r"module's 0 has 1 words, must have one for each of 2 ranks",
    "part": r"module's 1 is of type Linear, must be stages",
    "width": r"x has shape \[2, 4\], must be \[2, 3\]: \[\.\., 3\] of linear",
    "rows": r"x's shape but for its last dim is \[2\] on rank 0 and \[3\] on rank 1",
    "gradient": "x's requires_grad is False on rank 0 and True on rank 1",
    "time": "tokens have 5 in time, must divide by the 2 ranks",
    "long": "tokens have 66 in time, must have at most seq = 60",
    "tokens": "the digest of tokens is .* on rank 0 and .* on rank 1",
    "unknown": "tokens are from 24 to 24, must be from 0 to 23",
    "targets": "the digest of targets is .* on rank 0",
    "beyond": "targets are from 24 to 24, must be from 0 to 23",
    "shape": r"targets has shape \[1, 5\], must be",
    "state": "state has no such tensor as 0.positions.weight",
    "group": "world is a int, must be a World or a ProcessGroup",
}


def all_told(world):
    return {name: told(world, name) for name in WRONG}


def test_what_is_wrong_is_named_on_all_ranks_and_nothing_hangs():
    for found in launch(all_told, 2, backend="gloo"):
        for name, pattern in WRONG.items():
            assert re.search(pattern, found[name], re.DOTALL), (name, found[name])


def test_shares_are_what_ranks_have():
    assert shares(17, 5) == [len(x) for x in torch.arange(17).tensor_split(5)]
