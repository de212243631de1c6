"""Pipelines measured: beside torch.distributed.pipelining, beside the simulator, and the simulator.

`weft bench pipeline` runs all three. Ranks are processes of this machine. The peers take the same
model, weights, microbatches and order of work, turn about in one run; their gradients have to be
equal before any time counts.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from weft.bench.record import Record, Result
from weft.nn.transformer import Block, Config, loss, stages
from weft.plan.pipeline import SCHEDULES, idle, one_f_one_b
from weft.plan.schedule import Plan
from weft.plan.simulate import Timeline, simulate
from weft.run.pipeline import Cpu, Pipeline, durations
from weft.run.world import launch

COMMAND = "weft bench pipeline"
PEERS = {  # ours -> theirs; with one stage per rank their interleaved zero bubble is ZB-H1
    "gpipe": "ScheduleGPipe",
    "one_f_one_b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "zb_h1": "ScheduleInterleavedZeroBubble",
    "zb_v": "ScheduleZBVZeroBubble",
    "dualpipe_v": "ScheduleDualPipeV",
}
CLOSED = ("gpipe", "one_f_one_b", "interleaved", "zb_h1")  # formulas for any durations
OURS, THEIRS = "weft", "torch"  # torch.distributed.pipelining


class Sizes(NamedTuple):
    """What is run: ranks, microbatches, sequences in each, the model, how often.

    Peers are compared in several `rounds`, each of `repeats` steps by each: where the system puts
    the processes of a launch favours now the one and now the other, for as long as they live.
    The processor-time clock has a model of its own, `wide`: the longer an action takes, the less
    of its time is the machine's own doing.
    """

    p: int = 4
    m: int = 8
    batch: int = 4
    config: Config = Config(layers=8, width=64, heads=4, seq=64)
    wide: Config = Config(layers=8, width=192, heads=4, seq=64)
    warmup: int = 3
    repeats: int = 9
    rounds: int = 5
    actions: tuple[int, ...] = (250_000, 500_000, 1_000_000)


FULL = Sizes()
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now


def bench(progress: Progress, sizes: Sizes = FULL) -> list[Record]:
    """All records of the topic; `progress(done, total, what)` is told how far it is."""
    shape = f"p = {sizes.p}, m = {sizes.m}"
    blocks, wide = (
        f"{config.layers} blocks of width {config.width}, float32"
        for config in (sizes.config, sizes.wide)
    )
    peers = beside_torch(sizes, progress)
    progress(0.6, 1.0, "bubbles beside the simulator's")
    bubbles = beside_simulation(sizes)
    simulated = []
    for i, actions in enumerate(sizes.actions):
        progress(0.8 + 0.2 * i / len(sizes.actions), 1.0, f"simulating {actions} actions")
        simulated.append(simulation_speed(actions))
    titles = {
        "pipeline-peers": (f"A pipeline step, ours and torch's: {shape}, {blocks}", peers),
        "pipeline-bubble": (f"Bubbles by the processor-time clock: {shape}, {wide}", bubbles),
        "pipeline-simulation": ("Simulating 1F1B on 16 ranks", simulated),
    }
    return [
        Record.here(name, title, "pipeline", COMMAND, results)
        for name, (title, results) in titles.items()
    ]


# --- beside torch.distributed.pipelining ----------------------------------------------------------


def beside_torch(sizes: Sizes, progress: Progress) -> list[Result]:
    """Step times of each schedule, ours and theirs turn about, and their ratio pair by pair."""
    results, rounds = [], []
    for done in range(sizes.rounds):
        progress(0.6 * done / sizes.rounds, 1.0, "steps beside torch's")
        rounds.append(launch(_compare_all, sizes.p, sizes, timeout=1800)[0])
    for name in PEERS:
        ours, theirs = ([time for r in rounds for time in r[name][who]] for who in (0, 1))
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        results += [
            Result.of(name, OURS, "s", ours),
            Result.of(name, THEIRS, "s", theirs),
            Result.of(name, f"{OURS} / {THEIRS}", "1", ratios),
        ]
    return results


def _compare_all(world, sizes: Sizes) -> dict[str, tuple[list[float], list[float]]]:
    return {name: _compare(world, name, sizes) for name in PEERS}


def _compare(world, name: str, sizes: Sizes) -> tuple[list[float], list[float]]:
    plan = SCHEDULES[name](sizes.p, sizes.m)
    dice = torch.Generator().manual_seed(0)
    shape = 2, sizes.m * sizes.batch, sizes.config.seq
    inputs, targets = torch.randint(sizes.config.vocab, shape, generator=dice)
    mine, other = _model(plan, sizes, world.rank), _model(plan, sizes, world.rank)
    pipeline = Pipeline(plan, list(mine.values()), loss, world)
    pairs = list(zip(inputs.chunk(sizes.m), targets.chunk(sizes.m), strict=True))
    steps = [
        partial(pipeline.step, pairs),
        _their_step(PEERS[name], plan, other, inputs, targets, world),
    ]
    times: tuple[list[float], list[float]] = [], []
    for repeat in range(sizes.warmup + sizes.repeats):
        for who in (0, 1) if repeat % 2 else (1, 0):
            times[who].append(_seconds(steps[who], world))
        if repeat == 0:
            _demand_equal(mine, other)
        for stage in (*mine.values(), *other.values()):
            stage.zero_grad()
    ours, theirs = (samples[sizes.warmup :] for samples in times)
    return ours, theirs


def _model(plan: Plan, sizes: Sizes, rank: int) -> dict[int, nn.Module]:
    """This rank's stages of the same model every time."""
    torch.manual_seed(0)
    made = stages(sizes.config, plan.stages)
    return {stage: made[stage] for stage in plan.stages_of(rank)}


def _their_step(
    schedule: str, plan: Plan, mine: dict[int, nn.Module], inputs: Tensor, targets: Tensor, world
) -> Callable[[], None]:
    """One step of torch's schedule: inputs for the first stage's rank, targets for the last's."""
    from torch.distributed.pipelining import PipelineStage, schedules

    made = [
        PipelineStage(module, stage, plan.stages, world.device, group=world.group())
        for stage, module in mine.items()
    ]
    kind = getattr(schedules, schedule)
    single = issubclass(kind, schedules.PipelineScheduleSingle)
    runner = kind(made[0] if single else made, n_microbatches=plan.m, loss_fn=loss)
    arguments = [inputs] if 0 in mine else []
    options = {"target": targets} if plan.stages - 1 in mine else {}

    def step() -> None:
        runner.step(*arguments, losses=[], return_outputs=False, **options)

    return step


def _seconds(step: Callable[[], object], world) -> float:
    """From when the first rank starts until the last is done."""
    dist.barrier(group=world.group())
    start = time.perf_counter()
    step()
    ends = torch.tensor([-start, time.perf_counter()], dtype=torch.float64)
    dist.all_reduce(ends, op=dist.ReduceOp.MAX, group=world.group())
    return ends.sum().item()


def _demand_equal(mine: dict[int, nn.Module], other: dict[int, nn.Module]) -> None:
    """Times of two programs that do not do the same would mean nothing."""
    for stage in mine:
        for (name, a), b in zip(
            mine[stage].named_parameters(), other[stage].parameters(), strict=True
        ):
            torch.testing.assert_close(
                a.grad, b.grad, rtol=1e-4, atol=1e-6, msg=f"gradients of {name} in stage {stage}"
            )


# --- beside the simulator -------------------------------------------------------------------------


def beside_simulation(sizes: Sizes) -> list[Result]:
    """The bubble of each schedule under the processor-time clock, and what it should have been.

    All stages do the same work. Simulation and formula are given the mean durations of the very
    step that they are compared with; the formula only where it holds for any durations.
    """
    results = []
    for name, timelines in launch(_by_processor_time, sizes.p, sizes, timeout=1800)[0].items():
        times = [durations(timeline) for timeline in timelines]
        steps = list(zip(timelines, times, strict=True))
        bubbles = {
            "formula": [_by_formula(step, **mean) for step, mean in steps if name in CLOSED],
            "simulated": [simulate(step.plan, **mean).bubble for step, mean in steps],
            "measured": [step.bubble for step in timelines],
        }
        results += [Result.of(name, who, "1", b) for who, b in bubbles.items() if b]
    return results


def _by_processor_time(world, sizes: Sizes) -> dict[str, list[Timeline]]:
    return {name: _timelines(world, name, sizes) for name in SCHEDULES}


def _timelines(world, name: str, sizes: Sizes) -> list[Timeline]:
    plan, config = SCHEDULES[name](sizes.p, sizes.m), sizes.wide
    blocks = config.layers // plan.stages
    mine = [
        nn.Sequential(*(Block(config) for _ in range(blocks))) for _ in plan.stages_of(world.rank)
    ]
    shape = sizes.batch, config.seq, config.width
    # With an input that takes a gradient the first stage works as much as all others.
    pairs = [(torch.randn(shape).requires_grad_(), torch.zeros(shape)) for _ in range(plan.m)]
    pipeline = Pipeline(plan, mine, mse_loss, world, Cpu())
    count = sizes.warmup + sizes.repeats
    return [pipeline.step(pairs)[1] for _ in range(count)][sizes.warmup :]


def _by_formula(timeline: Timeline, f: list[float], b: list[float], w: list[float]) -> float:
    """Idle over total time, in closed form, with the mean durations of a rank's share."""
    plan = timeline.plan
    share = [sum(times) / plan.p for times in (f, b, w)]
    waits = idle(plan.name, plan.p, *share, v=plan.v)
    return waits / (waits + plan.m * sum(share))


# --- the simulator itself -------------------------------------------------------------------------


def simulation_speed(actions: int) -> Result:
    """Seconds that it takes to simulate a 1F1B plan of so many actions."""
    plan = one_f_one_b(16, actions // 32)
    samples = []
    for _ in range(3):
        start = time.perf_counter()
        simulate(plan, f=1, b=1, w=1, c=0.1)
        samples.append(time.perf_counter() - start)
    return Result.of(f"{actions} actions", OURS, "s", samples)
