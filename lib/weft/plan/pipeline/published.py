"""What the Zero Bubble paper measured and computed, row by row: tests compare ours with it."""

from dataclasses import dataclass, replace

from weft.plan.pipeline.schedules import interleaved
from weft.plan.schedule import Action, Plan


@dataclass(frozen=True)
class Profile:
    """One setting of the paper: durations of a whole rank's F, B, W and a hop in ms, and its rates.

    `v` is the interleaving of its 1F1B-I, one layer to a stage: the paper does not print it, its
    authors' script has it (see `interleaved_as_published`). `kept` is the share of an activation
    that W still needs once B is done, 32 h / (34 h + 5 a s) for width h, a heads and s tokens, as
    its authors' scheduler counts.
    """

    model: str
    p: int
    m: int
    f: float
    b: float
    w: float
    c: float
    v: int
    kept: float
    one_f_one_b: float
    interleaved: float
    zb_h1: float
    zb_h2: float
    zb_1p: float
    zb_2p: float

    @property
    def sizes(self) -> tuple[int, int, float, float, float, float]:
        """(p, m, f, b, w, c), as `weft.plan.pipeline.search.find.search` takes them."""
        return self.p, self.m, self.f, self.b, self.w, self.c


def _kept(h: int, a: int, s: int) -> float:
    return 32 * h / (34 * h + 5 * a * s)


_SMALL, _LARGE = _kept(h=2304, a=24, s=1024), _kept(h=4096, a=32, s=1024)

# Qi et al. 2024, tables 9 (durations) and 5 (bubble rates).
PROFILES = tuple(
    Profile(*row)
    for row in (
        ("1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, 3, _SMALL)
        + (0.2431, 0.1055, 0.1585, 0.1083, 0.1585, 0.0433),
        ("1.5B", 8, 32, 18.513, 18.086, 9.331, 0.626, 3, _SMALL)
        + (0.1985, 0.0818, 0.1242, 0.0837, 0.1242, 0.0039),
        ("1.5B", 8, 64, 18.546, 18.097, 9.321, 0.762, 3, _SMALL)
        + (0.1240, 0.0443, 0.0674, 0.0444, 0.0674, 0.0026),
        ("6.2B", 8, 24, 29.718, 29.444, 19.927, 0.527, 4, _LARGE)
        + (0.2347, 0.0808, 0.1323, 0.0698, 0.1323, 0.0029),
        ("6.2B", 8, 32, 29.802, 29.428, 19.530, 0.577, 4, _LARGE)
        + (0.1898, 0.0628, 0.1045, 0.0559, 0.1045, 0.0022),
        ("6.2B", 8, 64, 29.935, 29.621, 19.388, 0.535, 4, _LARGE)
        + (0.1091, 0.0320, 0.0554, 0.0294, 0.0554, 0.0010),
    )
)


class UnawaitedAction(Action):
    """An action that is simulated as if it needed no message."""

    def source(self, stages: int) -> None:
        return None


def interleaved_as_published(p: int, m: int, v: int) -> Plan:
    """Interleaved 1F1B as the paper's column 1F1B-I counts it, p hops too short.

    Of the tensors that go round, an output from the last rank to the first or a gradient the other
    way, it waits for that of the first microbatch of each group of p alone. The others are in time
    where messages take none. Where they do, those actions begin too early, and the step comes out
    p hops shorter, in all six settings, than that of `interleaved`, where every microbatch waits
    for its own.

    sail-sg/zero-bubble-pipeline-parallelism, megatron/core/pipeline_parallel/efficiency.py.
    """

    def counted(action: Action) -> Action:
        goes_round = action.stage % p == (0 if action.kind == "F" else p - 1)
        return UnawaitedAction(*action) if goes_round and action.microbatch % p else action

    plan = interleaved(p, m, v)
    return replace(plan, rows=tuple(tuple(map(counted, row)) for row in plan.rows))
