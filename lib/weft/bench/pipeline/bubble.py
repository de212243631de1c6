"""The bubbles of schedules that ran, by the processor-time clock, beside simulation and formula."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.pipeline.peers import PipelineSizes
from weft.bench.record import Measurement
from weft.nn.transformer import Block, Config
from weft.plan.pipeline import SCHEDULES, idle
from weft.plan.simulate import Timeline, simulate
from weft.run.pipeline import Cpu, Pipeline, durations
from weft.run.world import World, launch

CLOSED = ("gpipe", "one_f_one_b", "interleaved", "zb_h1")  # formulas for any durations
# The longer an action takes, the less of its time is the machine's own doing.
WIDE = PipelineSizes(config=Config(layers=8, width=192, heads=4, seq=64))


def beside_simulation(run: BenchRun, sizes: PipelineSizes = WIDE) -> Found:
    """The bubble of each schedule under the processor-time clock, and what it should have been.

    All stages do the same work. Simulation and formula are given the mean durations of the very
    step that they are compared with; the formula only where it holds for any durations.
    """
    run.progress(0.0, 1.0, "bubbles beside the simulator's")
    results = []
    for name, timelines in launch(_by_processor_time, sizes.p, sizes, timeout=1800)[0].items():
        times = [durations(timeline) for timeline in timelines]
        steps = list(zip(timelines, times, strict=True))
        bubbles = {
            "formula": [_by_formula(step, **mean) for step, mean in steps if name in CLOSED],
            "simulated": [simulate(step.plan, **mean).bubble for step, mean in steps],
            "measured": [step.bubble for step in timelines],
        }
        results += [Measurement.of(name, who, "1", b) for who, b in bubbles.items() if b]
    return f"Bubbles by the processor-time clock: {sizes}", results


BUBBLE = BenchJob("pipeline-bubble", beside_simulation)


def _by_processor_time(world: World, sizes: PipelineSizes) -> dict[str, list[Timeline]]:
    return {name: _timelines(world, name, sizes) for name in SCHEDULES}


def _timelines(world: World, name: str, sizes: PipelineSizes) -> list[Timeline]:
    plan, config = SCHEDULES[name](sizes.p, sizes.m), sizes.config
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
