"""What others measured over t, beside what a layer's formula says of it."""

from typing import NamedTuple

from weft.plan.arguments import instance, sizes
from weft.plan.hardware import CHIPS, LINKS, Link
from weft.plan.tensor.price import busy

WIDTH, SHARE = 3072, 0.6  # assumed: the figure's 3B model, and what its matmuls reach
NODES = Link("eight ports", 8 * LINKS["ib-ndr"].bandwidth, LINKS["ib-ndr"].latency)


class Scaled(NamedTuple):
    """Tokens a second and GPU, without and with sequence parallelism, and the largest batches."""

    t: int
    tokens: float
    tokens_sequence: float
    batch: int
    batch_sequence: int

    @property
    def counted(self) -> float:
        """Throughput of a GPU over that at t = 2, by `busy`: NVLink, then all ports of the nodes.

        >>> [f"{row.counted:.2f}" for row in PLAYBOOK]
        ['1.00', '0.85', '0.66', '0.42', '0.25']
        """
        return _busy(self.t) / _busy(PLAYBOOK[0].t)

    @property
    def measured(self) -> tuple[float, float]:
        """The same of what was measured."""
        first = PLAYBOOK[0]
        return self.tokens / first.tokens, self.tokens_sequence / first.tokens_sequence


# The Ultra-Scale Playbook (nanotron, 2025), figures tp_scaling and tp_sp_scaling: H100.
PLAYBOOK = (
    Scaled(2, 13923.18, 14167.25, 3, 4),
    Scaled(4, 12420.76, 13460.16, 8, 10),
    Scaled(8, 10903.32, 10888.53, 12, 20),
    Scaled(16, 6245.6, 6159.3, 16, 40),
    Scaled(32, 2146.44, 3609.73, 20, 100),
)


def fitted(t: int, at: Scaled) -> float:
    """Throughput of a GPU at t over that at t = 2, if a row's measured loss is all t - 1.

    That is `busy` with such a w that row `at`, without sequence parallelism, is met: what would
    be left at t if links stayed as they are at that row.

    >>> f"{fitted(16, PLAYBOOK[2]):.2f}"
    '0.61'
    """
    (t,) = sizes(t=t)
    instance(Scaled, at=at)
    first, kept = PLAYBOOK[0].t - 1, at.measured[0]
    w = ((at.t - 1) * kept - first) / (1 - kept)
    return (w + first) / (w + t - 1)


def _busy(t: int) -> float:
    link = LINKS["nvlink4"] if t <= 8 else NODES
    return busy(WIDTH, t, CHIPS["h100"], link, share=SHARE)
