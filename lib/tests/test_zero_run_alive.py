"""What ranks keep under each stage of ZeRO, what passes through, and when it is sent."""

import gc
import sys
import time
from functools import partial

import cloudpickle
import pytest
import torch
import torch._dynamo  # launch then has it loaded once, and not each rank
from torch import nn
from torch.utils.checkpoint import checkpoint

from weft.meter import live, traffic
from weft.plan.memory.states import model_states
from weft.plan.zero.kept import alive
from weft.plan.zero.stages import sent
from weft.run.world import launch
from weft.run.zero import comm_thread, gathered, sharded
from weft.run.zero.buckets import Bucket
from weft.run.zero.wrap import Zero

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file

WIDTH, DEPTH, BATCH = 96, 5, 2
LAYER = WIDTH * (WIDTH + 1)
ADAM = partial(torch.optim.Adam, lr=0.01, fused=True)


def tower(dtype=torch.float32) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))).to(dtype)


def measured(world, stage: int, dtype=None) -> dict[str, int]:
    """Bytes that a rank has made and still has: after a step, with gradients, and at most."""
    gc.freeze()  # what is there already takes long to look through
    x = torch.ones(BATCH, WIDTH)
    with live() as meter:
        zero = Zero(tower(), ADAM, stage, world, bucket=2 * LAYER, dtype=dtype)
        zero(x).sum().backward()
        zero.step()  # the optimizer makes its state
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


def until(ready, most: float = 1.0) -> None:
    """Wait for the other thread, which a busy machine may have stopped."""
    end = time.monotonic() + most
    while not ready() and time.monotonic() < end:
        time.sleep(0.001)


def test_no_more_than_two_rows_of_gradients_and_two_units_at_a_time():
    def watched(world, stage):
        zero, gradients, units = Zero(tower(), ADAM, stage, world, bucket=LAYER), [], []
        room, resize, ring = Bucket._room, gathered.resize, comm_thread.CommThread.ring

        def rows():
            return sum(bucket.gradients is not None for bucket in zero.buckets)

        def whole(bucket):
            return bucket.weights.untyped_storage().nbytes() > 0

        def seen():
            gradients.append(rows())
            units.append(sum(map(whole, zero.buckets)))

        def watched_room(bucket):
            found = room(bucket)
            seen()
            return found

        def watched_resize(row, numel):
            if not numel:  # the next unit's gathering has begun, if it has been asked for
                until(lambda: all(unit.coming is None or whole(unit) for unit in zero.buckets))
            resize(row, numel)
            seen()

        def slow_ring(comm, op, row):
            if op == "reduce_scatter":  # backward is faster than the wire, if that waits for it
                until(lambda: rows() == 2, most=0.3)
            ring(comm, op, row)

        Bucket._room, gathered.resize = watched_room, watched_resize
        comm_thread.CommThread.ring = slow_ring
        for _ in range(2):
            zero(torch.ones(BATCH, WIDTH)).sum().backward()
            zero.step()
            zero.zero_grad()
            seen()
            assert gradients[-1] == 0
        Bucket._room, gathered.resize, comm_thread.CommThread.ring = room, resize, ring
        return max(gradients), max(units), units[-1]

    def work(world):
        return watched(world, 2), watched(world, 3)

    found = launch(work, 3)
    assert [rank[0] for rank in found] == [(2, DEPTH, DEPTH)] * 3  # stage 2
    assert [rank[1] for rank in found] == [(2, 2, 0)] * 3  # stage 3


def test_sending_begins_before_backward_has_ended():
    def work(world, stage):
        events = []
        take, submit = sharded.DataParallel._take, comm_thread.CommThread.submit

        def watched_take(self, bucket, i, parameter):
            take(self, bucket, i, parameter)
            events.append("gradient")

        def watched_submit(self, job, *given):
            events.append(job.__name__)
            return submit(self, job, *given)

        sharded.DataParallel._take = watched_take
        comm_thread.CommThread.submit = watched_submit
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


@pytest.mark.parametrize("inside", [False, True])
def test_a_unit_that_is_computed_again_is_not_gathered_again(inside):
    class Again(nn.Linear):
        def forward(self, x):
            if not inside:
                return super().forward(x)
            return checkpoint(super().forward, x, use_reentrant=False)

    class Tower(nn.Sequential):
        def forward(self, x):
            for layer in self:
                x = layer(x) if inside else checkpoint(layer, x, use_reentrant=False)
            return x

    def work(world):
        layers = Tower(*(Again(WIDTH, WIDTH) for _ in range(DEPTH)))
        zero, found = Zero(layers, ADAM, 3, world), []
        for _ in range(3):
            with traffic() as meter:
                zero(torch.ones(BATCH, WIDTH)).sum().backward()
                zero.step()
                zero.zero_grad()
            found.append(meter.bytes["send"])
        plan = sent(3, [b.numel for b in zero.buckets], world.size, world.rank, 4, 4)
        assert found == [sum(plan.values())] * 3
        return True

    assert launch(work, 2) == [True] * 2


def test_the_next_unit_is_on_its_way_while_this_one_computes():
    def work(world):
        zero, events = Zero(tower(), ADAM, 3, world), []
        fetch = gathered.Zero3._fetch

        def watched(self, unit):
            if unit.coming is None:
                events.append(f"gather {unit.names[0][0]}")
            fetch(self, unit)

        gathered.Zero3._fetch = watched
        for i, layer in enumerate(zero.module):
            layer.register_forward_pre_hook(lambda *_, i=i: events.append(f"forward {i}"))
        x = torch.ones(BATCH, WIDTH)
        zero(x)
        first = list(events)
        events.clear()
        zero(x)
        return first, events

    first, second = launch(work, 2)[0]
    in_turn = [word for i in range(DEPTH) for word in (f"gather {i}", f"forward {i}")]
    assert first == in_turn  # the order is not known yet
    ahead = [word for i in range(1, DEPTH) for word in (f"gather {i}", f"forward {i - 1}")]
    assert second == ["gather 0", *ahead, f"forward {DEPTH - 1}"]


def test_another_order_than_the_last_is_followed():
    class Turns(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x, order):
            for i in order:
                x = self.layers[i](x)
            return x

    def work(world):
        torch.manual_seed(1)
        net = Turns().double()
        right = {name: x.clone() for name, x in net.state_dict().items()}
        zero = Zero(net, partial(torch.optim.SGD, lr=1.0), 3, world)
        other = Turns().double()
        other.load_state_dict(right)
        x = torch.ones(1, 4, dtype=torch.float64)
        for order in ((0, 1, 2, 3), (3, 1, 0), (2, 2, 1, 3, 0), (1,)):
            zero(x, order).sum().backward()
            zero.step()
            zero.zero_grad()
            other(x, order).sum().backward()
            torch.optim.SGD(other.parameters(), lr=1.0).step()
            other.zero_grad()
            assert not any(unit.here or unit.coming for unit in zero.buckets)
        for name, weight in zero.state_dict().items():
            torch.testing.assert_close(weight, other.state_dict()[name], rtol=1e-12, atol=1e-12)
        return True

    assert launch(work, 2) == [True] * 2
