"""Layouts on real processes: one process's losses, norms and weights, whatever the axes."""

from functools import cache, partial
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch.nn.utils import clip_grad_norm_

from weft.meter import traffic
from weft.nn.experts import ExpertsConfig
from weft.nn.transformer import Config, loss, stages
from weft.plan.composing import Layout
from weft.plan.shape import ModelShape
from weft.plan.tensor import sent, sent_ends
from weft.plan.zero import sent as zero_sent
from weft.run.composing import Trainer
from weft.run.composing.stages import schedule
from weft.run.pipeline.defer import WeightGradientStore, weight_gradients
from weft.run.tensor import parallelize
from weft.run.world import launch

SMALL = Config(layers=5, width=15, heads=5, vocab=23, seq=12, hidden=17)
SWITCH = ExpertsConfig(**vars(SMALL), experts=5, k=2)
BATCH, STEPS = 12, 3
OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.3, momentum=0.9),
    "adam": partial(torch.optim.AdamW, lr=1e-2),
}
TOLERANCE = 1e-10


def batches(T):
    """The same batches everywhere."""
    dice = torch.Generator().manual_seed(0)
    return [torch.randint(23, (2, BATCH, T), generator=dice).unbind() for _ in range(STEPS)]


@cache
def alone(config, optimizer, max_norm, T):
    """Losses, norms and the last weights of one process without any of our runtimes."""
    torch.manual_seed(3)
    model = stages(config, 1)[0].double()
    stepper, losses, norms = OPTIMIZERS[optimizer](model.parameters()), [], []
    for tokens, targets in batches(T):
        mean = loss(model(tokens), targets)
        stepper.zero_grad()
        mean.backward()
        if max_norm:
            norms.append(clip_grad_norm_(model.parameters(), max_norm).item())
        stepper.step()
        losses.append(mean.item())
    return losses, norms, model.state_dict()


def trained(world, layout, optimizer="sgd", max_norm=None, T=8, config=SMALL):
    """How far off is what a layout gives, of losses, norms and weights, from one process."""
    wanted, norms, weights = alone(config, optimizer, max_norm, T)
    how = OPTIMIZERS[optimizer], world, 3, torch.float64, max_norm
    trainer = Trainer(config, layout, *how)
    worst = []
    for i, batch in enumerate(batches(T)):
        worst.append(abs(trainer.step(batch).item() - wanted[i]))
        if max_norm:
            worst.append(abs(trainer.norm - norms[i]))
    found = trainer.state_dict()
    assert list(found) == list(weights)
    worst += [(found[name] - x).abs().max().item() for name, x in weights.items()]
    return max(worst)


def all_trained(world, cases):
    """Each case on as many ranks as it takes, several times at once where there are more."""
    found = []
    for layout, how in cases:
        copies = world.size // layout.devices
        mine = world.grid(copy=copies, rank=layout.devices).axis("rank")
        found.append(trained(mine, layout, **how))
    return found


def holds(cases, n):
    """All cases in one launch, each of which costs seconds."""
    for found in launch(all_trained, n, cases, backend="gloo"):
        for (layout, how), wrong in zip(cases, found, strict=True):
            assert wrong < TOLERANCE, (str(layout), how)


ON_8 = [
    (Layout(p=2, t=2, d=2, schedule="zb_h1", zero=1), {"max_norm": 0.5}),
    (Layout(p=2, t=2, d=2, schedule="zb_v", zero=2), {"optimizer": "adam"}),
    (Layout(p=2, t=2, d=2, v=2, zero=3, microbatch=3), {"max_norm": 0.5}),
    (Layout(p=2, t=2, d=2, schedule="dualpipe_v", zero=3), {"max_norm": 0.5}),
    (Layout(p=4, d=2, schedule="zb_h2"), {"max_norm": 0.1, "T": 5}),
    (Layout(t=4, d=2, zero=1, microbatch=3), {"optimizer": "adam", "max_norm": 0.5}),
    (Layout(t=2, d=4, zero=2, microbatch=1), {}),
    (Layout(p=2, d=2, schedule="gpipe", microbatch=2, zero=1), {"max_norm": 0.5}),
    (Layout(), {"max_norm": 0.5}),
]
ON_6 = [
    (Layout(p=2, t=3, schedule="zb_h2", microbatch=2), {"optimizer": "adam", "max_norm": 0.1}),
    (Layout(t=2, d=3, zero=3, microbatch=2), {"max_norm": 0.1}),
    (Layout(p=3, d=2, schedule="zb_h1", zero=2), {"max_norm": 0.5}),
    (Layout(p=3, t=2, zero=3, microbatch=4), {"T": 5}),
]


@pytest.mark.parametrize("n, cases", [(8, ON_8), (6, ON_6)])
def test_pipeline_tensor_and_data_ranks_give_what_one_process_gives(n, cases):
    holds(cases, n)


MORE_ON_8 = [
    (Layout(p=2, t=2, d=2, schedule="zb_h1", zero=1, sequence_parallel=True), {"max_norm": 0.5}),
    (Layout(t=4, d=2, zero=3, sequence_parallel=True, recompute="full", microbatch=3), {}),
    (Layout(p=2, t=2, d=2, schedule="zb_v", zero=3, recompute="full"), {"max_norm": 0.5}),
    (Layout(p=2, t=2, v=2, sequence_parallel=True, recompute="selective", microbatch=3), {}),
    (Layout(p=2, d=2, c=2, schedule="zb_h1", zero=1), {"max_norm": 0.5, "T": 7}),
    (Layout(p=2, t=2, c=2, sequence_parallel=True, recompute="full", zero=2, microbatch=6), {}),
    (Layout(c=4, d=2, zero=3, recompute="selective", microbatch=3), {"T": 11}),
]


def test_tokens_and_sequences_over_ranks_and_recomputing_change_no_number():
    holds(MORE_ON_8, 8)


WITH_EXPERTS = [
    (Layout(p=2, d=4, e=2, schedule="zb_h1", zero=1), {"max_norm": 0.5}),
    (Layout(d=4, c=2, e=4, zero=3, microbatch=3), {"max_norm": 0.5}),
    (Layout(p=2, t=2, d=2, e=2, zero=2, microbatch=3, sequence_parallel=True), {"T": 6}),
    (Layout(t=2, d=2, microbatch=6, recompute="full"), {"max_norm": 0.5, "T": 6}),
    (Layout(d=2, c=2, t=2, e=4, sequence_parallel=True, microbatch=6), {"max_norm": 0.5}),
]


def test_experts_over_data_ranks_are_those_of_one_process():
    holds([(layout, how | {"config": SWITCH}) for layout, how in WITH_EXPERTS], 8)


def deferred(world):
    """Weight gradients that B leaves for W in a block whose matrices are cut, and whether right."""
    found = []
    for sequence_parallel in (False, True):
        torch.manual_seed(0)
        whole, x = stages(SMALL, 1)[0][1].double(), torch.randn(2, 8, SMALL.width).double()
        block, plain = (parallelize(whole, world, sequence_parallel) for _ in range(2))
        with WeightGradientStore([block]) as store:
            block(x).sum().backward()
            layers = [layer for layer, _, _ in store.deferred]
            left = [layer.weight.grad is None for layer in layers]
        weight_gradients(store.deferred)
        plain(x).sum().backward()
        pairs = zip(block.parameters(), plain.parameters(), strict=True)
        found.append((left, all(a.grad.equal(b.grad) for a, b in pairs)))
    return found


def test_a_zero_bubble_schedule_defers_the_gradients_of_cut_matrices():
    assert launch(deferred, 2, backend="gloo") == [[([True] * 4, True)] * 2] * 2


# --- what is sent ---------------------------------------------------------------------------------

EVEN = Config(layers=4, width=12, heads=4, vocab=24, seq=8, hidden=24)
COUNTED = [
    Layout(p=2, t=2, d=2, schedule="zb_h1"),
    Layout(p=2, t=2, d=2, schedule="zb_v", zero=1),
    Layout(p=2, t=2, d=2, zero=2, microbatch=3),
    Layout(t=2, d=4, zero=3),
]


def count_bytes(world):
    """For each layout, in a step after the first: bytes by operation, and those of ZeRO's plan."""
    found = []
    for layout in COUNTED:
        trainer = Trainer(EVEN, layout, OPTIMIZERS["sgd"], world, max_norm=1.0)
        batch = torch.randint(EVEN.vocab, (2, BATCH, EVEN.seq)).unbind()
        dist.broadcast(batch[0], 0), dist.broadcast(batch[1], 0)
        for _ in range(2):
            with traffic() as wire:
                trainer.step(batch)
        data, m = trainer.axes.data, layout.microbatches(BATCH)
        buckets = [[bucket.numel for bucket in zero.buckets] for zero in trainer.zeros]
        how = data.size, data.rank, 4, 4, m
        planned = [sum(zero_sent(layout.zero, numels, *how).values()) for numels in buckets]
        found.append((dict(wire.bytes), sum(planned)))
    return found


def test_what_is_sent_is_what_the_plans_of_the_parts_say():
    ranks = launch(count_bytes, 8, backend="gloo")
    shape = ModelShape(4, EVEN.width, EVEN.heads, EVEN.vocab, EVEN.seq, hidden=EVEN.hidden)
    for i, layout in enumerate(COUNTED):
        found = [by_rank[i] for by_rank in ranks]
        m, d, t = layout.microbatches(BATCH), layout.d, layout.t
        message = layout.microbatch * EVEN.seq * EVEN.width * 4
        crossed = sum(a != b for a, b in pairwise(schedule(layout, m).ranks))
        passed = 2 * m * crossed * message * d * t
        planned = sum(zero for _, zero in found)
        assert sum(one["send"] for one, _ in found) == passed + planned, layout
        layers = 4 * sent(shape, layout.microbatch, t, size=4)
        ends = sent_ends(shape, layout.microbatch, t, size=4)
        loss_and_norm = 8 * 2 * (8 - 8 // d) + 2 * 7 * 8
        summed = sum(one["all_reduce"] for one, _ in found)
        assert summed == m * d * t * (layers + ends) + loss_and_norm, layout
