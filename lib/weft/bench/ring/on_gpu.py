"""One GPU plays the ranks of a ring in turn: blocks computed, parts merged, beside their sending.

A rank's work in a step does not depend on which device does it. So one device measures what each
rank of a ring would compute in each step, and the slowest of them, step after step, is how long a
pass takes whose sending is hidden. Whether it is hidden is told by a block's bytes over a link's
bandwidth, which is arithmetic and is called so.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.plan.hardware import LINKS
from weft.plan.ring import LAYOUTS, held, sent
from weft.plan.ring.visible import Rectangle, Visibility, rectangles
from weft.run.ring.blocks import BlockKernel, attend, begin, merge_

OVER = ("nvlink4", "pcie5", "ib-ndr")


class PlayedRing(NamedTuple):
    """What is played: tokens on a rank, ranks, heads of a width, and how often."""

    blocks: tuple[int, ...] = (1024, 4096, 16384)
    ranks: int = 4
    H: int = 32
    G: int = 8
    K: int = 128
    warmup: int = 3
    repeats: int = 15


FULL = PlayedRing()


def played(run: BenchRun, sizes: PlayedRing = FULL) -> Found:
    """Seconds of blocks, of merging, of whole passes in each layout; and of a block's sending."""
    clock = run.clock(sizes.warmup, sizes.repeats)
    results = []
    for c in run.each(sizes.blocks, "blocks of {} tokens"):
        one = Player(run.device, c, sizes)
        samples = clock.samples(one.calls())
        for (name, _, _), taken in samples.items():
            if name not in LAYOUTS:
                results.append(Measurement.of(f"{name}, {c} tokens", "weft", "s", taken))
        for layout in LAYOUTS:
            taken = _passes(layout, samples, sizes.ranks)
            results.append(Measurement.of(f"{layout}, {c} tokens a rank", "weft", "s", taken))
        for link in OVER:
            seconds = sent(2 * c, 2, sizes.H, sizes.G, sizes.K) / LINKS[link].bandwidth
            results.append(Measurement.of(f"a block, {c} tokens", f"{link}, b/B", "s", [seconds]))
    what = f"{sizes.H} heads on {sizes.G} of width {sizes.K}, bf16"
    return f"One device in the place of {sizes.ranks} ranks, causal forward: {what}", results


BLOCK = BenchJob("ring-block", played, ("cuda",), seconds=60)


class Player:
    """One rank after the other, with the same numbers: times do not depend on them."""

    def __init__(self, device: str, c: int, sizes: PlayedRing) -> None:
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.sizes, self.c, self.how = sizes, c, BlockKernel(_kernel(device))
        self.q, self.k, self.v = (
            torch.randn(1, c, heads, sizes.K, device=device, dtype=dtype)
            for heads in (sizes.H, sizes.G, sizes.G)
        )
        self.o, self.lse = begin(self.q, self.v)

    def calls(self) -> dict[tuple[str, int, int], Callable[[], object]]:
        """By name, or by layout, step and rank: what is timed."""
        c, half = self.c, self.c // 2
        whole, part = slice(0, c), self.how.whole(self.q, self.k, self.v)
        found = {("merging", 0, 0): partial(merge_, self.o, self.lse, *part)}
        for name, cols, kind in (
            ("all pairs", c, "all"), ("half of them", half, "all"), ("causal", c, "causal"),
        ):  # fmt: skip
            one = [Rectangle(whole, slice(0, cols), kind)]
            found[name, 0, 0] = partial(self._attend, one)
        n = self.sizes.ranks
        for layout in LAYOUTS:
            parts = held(n * c, n, layout)
            for step in range(n):
                for rank in range(n):
                    some = rectangles(parts[rank], parts[(rank - step) % n], Visibility())
                    found[layout, step, rank] = partial(self._attend, some)
        return found

    def _attend(self, visible: list[Rectangle]) -> None:
        attend(self.o, self.lse, self.q, self.k, self.v, visible, self.how)


def _passes(layout: str, samples: dict, n: int) -> list[float]:
    """The slowest rank of each step, the steps added up, round by round."""
    rounds = len(samples[layout, 0, 0])
    return [
        sum(max(samples[layout, step, rank][i] for rank in range(n)) for step in range(n))
        for i in range(rounds)
    ]


def _kernel(device: str) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """Ours on a GPU; None, which is torch's, on a processor."""
    if device != "cuda":
        return None
    from weft.kernels.attention import attention

    return attention
