"""The schedule search beside the Zero Bubble paper's: bubble rates for its six settings."""

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.plan.pipeline import PROFILES, Profile
from weft.plan.pipeline.search import bound, search


def rates(run: BenchRun) -> Found:
    """The bubble rates of all six."""
    results = []
    for profile in run.each(PROFILES, "{0.model}, m = {0.m}"):
        results += searched(profile)
    title = "Bubble rates: the Zero Bubble paper's searches, ours, and what nothing can go below"
    return title, results


SEARCH = BenchJob("pipeline-search", rates)


def searched(x: Profile) -> list[Measurement]:
    """For each limit: the paper's rate, ours, and what no schedule can go below.

    "whole" counts an activation until its W. "kept" counts, after B, only the part that W needs.
    """
    limits = {
        f"{x.model} m={x.m}, p whole": (x.zb_1p, {"memory": x.p}),
        f"{x.model} m={x.m}, 2p kept": (x.zb_2p, {"memory": 2 * x.p, "kept": x.kept}),
        f"{x.model} m={x.m}, 2p whole": (None, {"memory": 2 * x.p}),
    }
    results = []
    for name, (paper, limit) in limits.items():
        rates = {
            "paper": paper,
            "search": search(*x.sizes, **limit).bubble_rate,
            "bound": bound(*x.sizes, **limit),
        }
        results += [
            Measurement.of(name, who, "1", [r]) for who, r in rates.items() if r is not None
        ]
    return results
