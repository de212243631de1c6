"""The simulator itself, timed."""

from functools import partial

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.plan.pipeline import one_f_one_b
from weft.plan.simulate import simulate

RANKS = 16
ACTIONS = (250_000, 500_000, 1_000_000)


def speed(run: BenchRun, sizes: tuple[int, ...] = ACTIONS) -> Found:
    """Seconds that it takes to simulate 1F1B plans of so many actions."""
    clock, results = run.clock(0, 3), []
    for actions in run.each(sizes, "simulating {} actions"):
        plan = one_f_one_b(RANKS, actions // (2 * RANKS))
        times = clock.samples({"weft": partial(simulate, plan, f=1, b=1, w=1, c=0.1)})
        results.append(Measurement.of(f"{actions} actions", "weft", "s", times["weft"]))
    return f"Simulating 1F1B on {RANKS} ranks", results


SIMULATION = BenchJob("pipeline-simulation", speed)
