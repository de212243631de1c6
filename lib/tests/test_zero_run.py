"""Every stage of ZeRO on real processes: trains as one process does, sends what the plan says."""

import sys
from collections import Counter
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import cloudpickle
import pytest
import torch
import torch._dynamo  # launch then has it loaded once, and not each rank
from torch import nn
from torch.utils.checkpoint import checkpoint

from weft.meter import traffic
from weft.plan.zero.stages import Call, calls, sent
from weft.run.world import launch
from weft.run.zero.comm_thread import CommThread
from weft.run.zero.wrap import STAGES, Zero

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test file

TOLERANCE = 1e-12
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)
ADAM = partial(torch.optim.Adam, lr=0.01)
ADAMW = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1, foreach=True)


class Block(nn.Module):
    """Sees its input twice; may be computed again in backward, inside or as a whole."""

    def __init__(self, width: int, again: bool):
        super().__init__()
        self.up, self.norm = nn.Linear(width, 2 * width + 1), nn.LayerNorm(2 * width + 1)
        self.down, self.again = nn.Linear(2 * width + 1, width, bias=False), again

    def inner(self, x):
        return self.down(torch.tanh(self.norm(self.up(x))))

    def forward(self, x):
        return x + (checkpoint(self.inner, x, use_reentrant=False) if self.again else self.inner(x))


class Net(nn.Module):
    """Odd sizes, a weight in two children, one of the module's own, a frozen layer, a buffer,
    a child that is not always used, parameters with fewer elements than there are ranks.
    """

    def __init__(self, again: str = ""):
        super().__init__()
        self.again = again
        self.first = nn.Linear(5, 7)
        self.blocks = nn.ModuleList(Block(7, again == "inside") for _ in range(2))
        self.middle = nn.Sequential(nn.Linear(7, 5), nn.Tanh())
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.tied = nn.Linear(5, 7, bias=False)
        self.tied.weight = self.first.weight
        self.rare = nn.Linear(7, 7)
        self.last = nn.Linear(7, 1)
        self.scale = nn.Parameter(torch.tensor([0.5]))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, rare=False):
        self.calls += 1
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again == "around" else block(x)
        x = self.tied(self.frozen(self.middle(x)))
        if rare:
            x = self.rare(x)
        return self.last(x) * self.scale


class Case(NamedTuple):
    """How a model is trained."""

    optimizer: partial = ADAMW
    bucket: int = 200
    again: str = ""
    microbatches: int = 1
    quiet: bool = True  # whether microbatches but the last are within no_sync
    clip: float | None = None
    unused: bool = False


CASES = (
    Case(SGD),
    Case(ADAM, bucket=30, unused=True),
    Case(ADAMW, bucket=10**6, clip=0.3),
    Case(again="inside", microbatches=3, clip=1e9),
    Case(again="around", microbatches=2, quiet=False, clip=0.3),
    Case(SGD, microbatches=3, quiet=False),
)


def made(again: str = "") -> Net:
    torch.manual_seed(1)
    return Net(again).double()


def batches(steps: int, count: int):
    dice = torch.Generator().manual_seed(2)
    return torch.randn(steps, 2 * count, 5, generator=dice, dtype=torch.float64)


def alone(case: Case, n: int, steps: int) -> list[dict]:
    """The weights after each step, and the gradient's norm, of one process with the whole batch."""
    net, found = made(), []
    optimizer = case.optimizer(net.parameters())
    for step, batch in enumerate(batches(steps, n * case.microbatches)):
        net(batch, rare=step % 2 == 1).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), case.clip or 1e9).item()
        optimizer.step()
        optimizer.zero_grad()
        found.append(({name: x.clone() for name, x in net.state_dict().items()}, norm))
    return found


def together(world, case: Case, stage: int, steps: int) -> list[dict]:
    """The same by this rank and its peers; they start from weights of their own."""
    net, found = made(case.again), []
    for weight in net.parameters() if world.rank else ():
        weight.data.normal_()
    zero = Zero(net, case.optimizer, stage, world, bucket=case.bucket, unused=case.unused)
    for step, batch in enumerate(batches(steps, world.size * case.microbatches)):
        parts = batch[world.rank :: world.size].chunk(case.microbatches)
        for i, part in enumerate(parts):
            quiet = case.quiet and i < case.microbatches - 1
            with zero.no_sync() if quiet else nullcontext():
                loss = zero(part, rare=step % 2 == 1).square().mean() / case.microbatches
                loss.backward()
        norm = zero.clip(case.clip) if case.clip else None
        zero.step()
        zero.zero_grad()
        found.append((zero.state_dict(), norm))
    return found


def compare(world, cases, stages=range(4), steps=4) -> list[str]:
    """What differs between a rank's training and that of one process."""
    wrong = []
    for case in cases:
        right = alone(case, world.size, steps)
        for stage in stages:
            rows = zip(together(world, case, stage, steps), right, strict=True)
            for step, ((mine, norm), (theirs, length)) in enumerate(rows):
                far = [
                    name
                    for name, x in theirs.items()
                    if name != "calls" and not (mine[name] - x).abs().max() <= TOLERANCE
                ]
                if far or mine.keys() != theirs.keys():
                    wrong.append(f"{case} stage {stage} step {step}: {far}")
                if norm is not None and abs(norm - length) > TOLERANCE * length:
                    wrong.append(f"{case} stage {stage} step {step}: norm {norm}, {length}")
    return wrong


@pytest.mark.parametrize(
    ("n", "cases", "stages", "steps"),
    [
        (1, CASES[3:4], range(4), 2),
        (2, CASES[:3], range(4), 4),
        (3, CASES[3:], range(4), 2),
        (5, CASES[2:3], (1, 3), 2),
    ],
)
def test_every_stage_is_training_in_one_process(n, cases, stages, steps):
    assert launch(compare, n, cases, stages, steps) == [[]] * n


# --- what is sent ---------------------------------------------------------------------------------


def plain() -> nn.Sequential:
    torch.manual_seed(3)
    layers = (nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.LayerNorm(3), nn.Linear(3, 1))
    return nn.Sequential(*layers).double()


def counted(world, stage: int, microbatches: int, quiet: bool, dtype=None, clip=False):
    """The bytes of each of two steps by operation, and what the plan says."""
    zero, found = Zero(plain(), SGD, stage, world, bucket=30, dtype=dtype), []
    size = 8 if dtype is None else 2
    for _ in range(2):
        with traffic() as meter:
            for i in range(microbatches):
                with zero.no_sync() if quiet and i < microbatches - 1 else nullcontext():
                    zero(torch.ones(2, 5, dtype=torch.float64)).sum().backward()
            if clip:
                zero.clip(1.0)
            zero.step()
            zero.zero_grad()
        found.append({op: nbytes for op, nbytes in meter.bytes.items() if nbytes})
    buckets = [bucket.numel for bucket in zero.buckets]
    plan = sent(stage, buckets, world.size, world.rank, size, size, microbatches)
    return found, sum(plan.values())


@pytest.mark.parametrize("n", [1, 2, 3])
def test_bytes_sent_are_the_plans_and_nothing_else(n):
    def work(world):
        for stage in range(4):
            for microbatches, quiet in ((1, True), (3, True), (2, False)):
                if microbatches > 1 and not quiet and stage < 2:
                    continue  # two passes that are sent each are not what the plan counts
                found, plan = counted(world, stage, microbatches, quiet)
                assert found == [{"send": plan} if n > 1 else {}] * 2, (stage, microbatches)
            found, plan = counted(world, stage, 1, True, torch.bfloat16)
            assert found == [{"send": plan} if n > 1 else {}] * 2, (stage, "bf16")
            found, plan = counted(world, stage, 1, True, clip=True)
            extra = {"all_reduce"} if n > 1 and stage else set()
            assert all(set(row) - {"send"} == extra for row in found)
        return True

    assert launch(work, n) == [True] * n


def made_calls(world, stage: int, microbatches: int) -> tuple[Counter, int]:
    """What a second step calls, how often, and how many buckets there are."""
    zero, found = Zero(plain(), SGD, stage, world, bucket=30), Counter()
    phase, running = [""], [""]  # of the one who asks, and of what the thread does
    submit, ring = CommThread.submit, CommThread.ring

    def watched_submit(comm, job, *given):
        def told(*given, asked=phase[0]):
            running[0] = asked
            job(*given)

        return submit(comm, told, *given)

    def watched_ring(comm, op, row):
        rows = {"weights": [b.weights for b in zero.buckets]}
        rows["gradients"] = [b.gradients for b in zero.buckets]
        (what,) = (name for name, all_ in rows.items() if any(row is x for x in all_))
        found[Call(op, what, running[0])] += 1
        ring(comm, op, row)

    CommThread.submit, CommThread.ring = watched_submit, watched_ring
    for _ in range(2):  # in the first, stage 3 learns the order of its units
        found.clear()
        for i in range(microbatches):
            with zero.no_sync() if i < microbatches - 1 else nullcontext():
                phase[0] = "forward"
                loss = zero(torch.ones(2, 5, dtype=torch.float64)).sum()
                phase[0] = "backward"
                loss.backward()
        phase[0] = "step"
        zero.step()
        zero.zero_grad()
    CommThread.submit, CommThread.ring = submit, ring
    return found, len(zero.buckets)


def test_the_collectives_are_the_plans_call_by_call():
    def work(world):
        for stage in range(4):
            for microbatches in (1, 3):
                found, buckets = made_calls(world, stage, microbatches)
                plan = Counter(calls(stage, microbatches))
                assert found == {call: count * buckets for call, count in plan.items()}, stage
        return True

    assert launch(work, 2) == [True] * 2


def test_without_no_sync_stages_0_and_1_average_every_microbatch():
    def work(world):
        for stage in (0, 1):
            quiet, loud = (counted(world, stage, 2, quiet)[0][-1]["send"] for quiet in (1, 0))
            again = counted(world, 2, 2, True)[1]  # as stage 2 always does
            assert loud == (2 * quiet if stage == 0 else again), stage
        return True

    assert launch(work, 2) == [True] * 2


# --- what it is made of ---------------------------------------------------------------------------


def test_pieces_are_every_element_once_and_the_weights_are_theirs():
    def work(world):
        told = []
        for stage in range(4):
            net = made()
            sizes = {name: p.numel() for name, p in net.named_parameters() if p.requires_grad}
            zero = Zero(net, ADAM, stage, world, bucket=100)
            assert (zero.stage, type(zero)) == (stage, STAGES[stage])
            held = [p for group in zero.optimizer.param_groups for p in group["params"]]
            assert [id(p) for p in held] == [id(piece.parameter) for piece in zero.pieces()]
            ranges = []
            for name, start, parameter in zero.pieces():
                assert parameter.dim() == 1 and parameter.is_leaf
                ranges.append((name, start, start + len(parameter)))
                parameter.data.copy_(torch.arange(start, start + len(parameter)))
            zero.refresh()
            whole = zero.state_dict()
            for name, numel in sizes.items():
                right = torch.arange(numel, dtype=torch.float64)
                assert torch.equal(whole[name].flatten(), right), (stage, name)
            assert torch.equal(whole["tied.weight"], whole["first.weight"])
            assert torch.equal(whole["frozen.weight"], made().frozen.weight)
            told.append((sizes, ranges))
        return told

    ranks = launch(work, 3)
    for stage in range(4):
        sizes = ranks[0][stage][0]
        ranges = [row for rank in ranks for row in rank[stage][1]]
        for name, numel in sizes.items():
            covered = sorted((start, stop) for what, start, stop in ranges if what == name)
            ends = [0, *(stop for _, stop in covered)]
            if stage == 0:
                assert covered == [(0, numel)] * 3
            else:
                assert [start for start, _ in covered] == ends[:-1] and ends[-1] == numel
