"""What ranks keep under each stage of ZeRO, what passes through, and when it is sent."""

import gc
import sys
from functools import partial

import cloudpickle
import pytest
import torch
import torch._dynamo  # launch then has it loaded once, and not each rank
from torch import nn

from weft.meter import live
from weft.plan.memory import model_states
from weft.plan.zero_alive import alive
from weft.run import server, zero_gather, zero_lane, zero_stages
from weft.run.world import launch
from weft.run.zero import Zero

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file

WIDTH, DEPTH, BATCH = 96, 7, 2
LAYER = WIDTH * (WIDTH + 1)
ADAM = partial(torch.optim.Adam, lr=0.01, foreach=False)


@pytest.fixture(scope="module", autouse=True)
def ranks_with_the_compiler():
    server._close_server()


def tower(dtype=torch.float32) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))).to(dtype)


def measured(world, stage: int, dtype=None) -> dict[str, int]:
    """Bytes that a rank has made and still has: after a step, with gradients, and at most."""
    x = torch.ones(BATCH, WIDTH)
    with live() as meter:
        zero = Zero(tower(), ADAM, stage, world, bucket=2 * LAYER, dtype=dtype)
        for _ in range(2):  # the optimizer's state is made in the first
            zero(x).sum().backward()
            zero.step()
            zero.zero_grad()
        gc.collect()
        after, meter._storages.peak = meter.now, meter.now
        zero(x).sum().backward()
        gc.collect()
        full, peak = meter.now, meter.peak
        zero.step()
        stepped = meter.peak
    buckets = [bucket.numel for bucket in zero.buckets]
    return {"after": after, "full": full, "peak": peak, "step": stepped, "buckets": buckets}


def test_bytes_alive_are_the_formulas():
    def work(world):
        return {
            (stage, recipe): measured(world, stage, dtype)
            for stage in range(4)
            for recipe, dtype in (("fp32", None), ("mixed", torch.bfloat16))
        }

    n, params = 3, DEPTH * LAYER
    activations = 4 * (DEPTH + 3) * BATCH * WIDTH
    for rank, rows in enumerate(launch(work, n)):
        for (stage, recipe), row in rows.items():
            states = model_states(params, n, stage, recipe)
            plan = alive(stage, row["buckets"], n, rank, recipe)
            size = 4 if recipe == "fp32" else 2
            kept = states.weights + states.optimizer  # zero_grad has freed the gradients
            assert row["after"] == pytest.approx(kept, rel=0.02), (stage, recipe)
            assert row["full"] == pytest.approx(states.total, rel=0.02), (stage, recipe)
            # A ring receives a part of a bucket at a time, and before a gradient lies in its
            # row, autograd has it.
            passing = size * (2 * (max(row["buckets"]) // n + 1) + WIDTH**2) + activations
            assert row["peak"] <= plan.total + passing, (stage, recipe)
            # Masters want gradients like themselves: a copy of them, for the step.
            fine = 4 * states.gradients / 2 if recipe == "mixed" else 0
            gradients = fine * (1 / n if stage == 1 else 1)
            most = max(plan.total + passing, states.total + 2 * gradients)
            assert row["step"] <= 1.02 * most, (stage, recipe)


def test_no_more_than_two_rows_of_gradients_and_two_units_at_a_time():
    def work(world):
        zero, gradients, units = Zero(tower(), ADAM, 3, world), [], []
        room, resize = type(zero.buckets[0])._room, zero_gather.resize

        def seen(*_):
            gradients.append(sum(b.gradients is not None for b in zero.buckets))
            units.append(sum(b.weights.untyped_storage().nbytes() > 0 for b in zero.buckets))

        def watched_room(bucket):
            found = room(bucket)
            seen()
            return found

        type(zero.buckets[0])._room = watched_room
        zero_gather.resize = lambda *given: (resize(*given), seen())
        for _ in range(3):
            zero(torch.ones(BATCH, WIDTH)).sum().backward()
            zero.step()
            zero.zero_grad()
            seen()
            assert (gradients[-1], units[-1]) == (0, 0)
        return max(gradients), max(units)

    assert launch(work, 3) == [(2, 2)] * 3


def test_sending_begins_before_backward_has_ended():
    def work(world, stage):
        events = []
        take, submit = zero_stages.DataParallel._take, zero_lane.Lane.submit

        def watched_take(self, bucket, i, parameter):
            take(self, bucket, i, parameter)
            events.append("gradient")

        def watched_submit(self, job, *given):
            events.append(job.__name__)
            return submit(self, job, *given)

        zero_stages.DataParallel._take = watched_take
        zero_lane.Lane.submit = watched_submit
        zero = Zero(tower(), ADAM, stage, world, bucket=2 * LAYER)
        for _ in range(2):
            events.clear()
            output = zero(torch.ones(BATCH, WIDTH)).sum()
            forward = list(events)
            events.clear()
            output.backward()
        return forward, events

    for stage in (0, 2, 3):
        forward, backward = launch(work, 2, stage)[0]
        last = len(backward) - 1 - backward[::-1].index("gradient")
        first = backward.index("reduce")
        units = DEPTH if stage == 3 else (DEPTH + 1) // 2
        assert first < last and backward.count("reduce") == units
        assert forward == ["gather"] * (DEPTH if stage == 3 else 0)
        assert backward.count("gather") == len(forward)
        if stage == 3:  # two are under way before the first has been computed with
            assert backward[:2] == ["gather"] * 2


def test_the_next_unit_is_gathered_while_this_one_computes():
    def work(world):
        zero, events = Zero(tower(), ADAM, 3, world), []
        for i, layer in enumerate(zero.module):
            layer.register_forward_pre_hook(lambda *_, i=i: events.append(f"forward {i}"))
        gather = zero_gather.Unit.gather

        def watched(unit, lane):
            events.append(f"gather {unit.names[0][0]}")
            gather(unit, lane)

        zero_gather.Unit.gather = watched
        x = torch.ones(BATCH, WIDTH)
        zero(x)
        first = list(events)
        events.clear()
        zero(x)
        return first, events

    first, second = launch(work, 2)[0]
    in_turn = [word for i in range(DEPTH) for word in (f"gather {i}", f"forward {i}")]
    assert first == in_turn  # the order is not known yet
    assert second.index("gather 0") == 0
    for i in range(1, DEPTH):
        assert second.index(f"gather {i}") < second.index(f"forward {i}")
    assert sorted(second) == sorted(first)
