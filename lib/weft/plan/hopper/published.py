"""What was published about FlashAttention-3's speed, to hold the simulation against."""

from dataclasses import dataclass

from weft.plan.hopper.prediction import Prediction, predict
from weft.plan.hopper.schedule import SM, TILES, Sm


@dataclass(frozen=True)
class Published:
    """A forward pass that somebody timed: what ran, its sizes, and FLOP/s as published."""

    policy: str
    K: int
    T: int
    heads: int
    batch: int
    rate: float
    causal: bool = False
    dtype: str = "bf16"
    chip: str = "h100"

    def predicted(self, sm: Sm = SM) -> Prediction:
        """The same pass, simulated."""
        tile = TILES[self.dtype, self.K, self.causal]
        sizes = self.T, self.heads, self.batch
        return predict(self.policy, tile, *sizes, self.causal, self.chip, sm)

    def error(self, sm: Sm = SM) -> float:
        """Predicted over published, less one."""
        return self.predicted(sm).rate / self.rate - 1


TERA = 1e12

# Shah et al. 2024, table 2, fp16. The paper does not say whether the warpgroups took turns in the
# second row, nor how the kernel of the third loads; `not_specialized` is our reading of it.
ABLATION = tuple(
    Published(policy, 128, 8448, 16, 4, 4 * 8448**2 * 128 * 64 / milliseconds / 1e-3)
    for policy, milliseconds in (
        ("overlapped", 3.538),
        ("specialized", 4.021),
        ("not_specialized", 4.105),
    )
)


def _bars(K: int, rates: dict[int, float], causal: bool = False) -> tuple[Published, ...]:
    """A row of a figure: 16k tokens in all and 2048 columns, so 2048 / K heads."""
    return tuple(
        Published("overlapped", K, T, 2048 // K, 16384 // T, rate * TERA, causal)
        for T, rate in rates.items()
    )


# Shah et al. 2024, figure 5, fp16, read from the bars: plus or minus one bar.
BARS = (
    *_bars(64, {512: 333, 1024: 392, 2048: 460, 4096: 476, 8192: 496, 16384: 497}),
    *_bars(64, {4096: 420, 8192: 460, 16384: 473}, causal=True),
    *_bars(128, {512: 467, 1024: 565, 2048: 625, 4096: 638, 8192: 646, 16384: 648}),
    *_bars(128, {4096: 579, 8192: 602, 16384: 616}, causal=True),
    *_bars(256, {1024: 627, 2048: 707, 4096: 736, 8192: 746, 16384: 756}),
    *_bars(256, {4096: 612, 8192: 628, 16384: 642}, causal=True),
)


def bar(K: int, T: int, causal: bool = False) -> Published:
    """One bar of the paper's figure 5, by head width, length and mask.

    >>> round(bar(128, 4096).rate / TERA)
    638
    """
    for one in BARS:
        if (one.K, one.T, one.causal) == (K, T, causal):
            return one
    known = [one.T for one in BARS if (one.K, one.causal) == (K, causal)]
    raise ValueError(
        f"T is {T} at K = {K}, must be one of {known} there: the figure has no other"
        if known
        else f"K is {K}, must be 64, 128 or 256"
    )


# Shah et al. 2024, abstract: "close to 1.2 PFLOPs/s"; figure 7 has it at K = 256.
FP8 = (Published("overlapped", 256, 16384, 8, 1, 1200 * TERA, dtype="fp8"),)

# On an H200, bf16: cuDNN 9.19 (cudnn-frontend, results/h200_919) and FlashAttention-3 of 2026
# (flash-attention, pull request 2754). What order their kernels take is not known to us.
H200 = (
    Published("overlapped", 128, 16384, 64, 1, 702 * TERA, chip="h200"),
    Published("overlapped", 128, 16384, 64, 1, 673 * TERA, causal=True, chip="h200"),
    Published("overlapped", 128, 16384, 64, 1, 695 * TERA, causal=True, chip="h200"),
)
