"""From tensors to launches: what attention accepts, and how a kernel is told of it."""

from math import e, log2
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from weft.kernels.attention.tile import MaskView, View, padded
from weft.kernels.attention.tuned import WIDEST, KernelTile, chip, in_window, tile
from weft.kernels.code import launch
from weft.plan.arguments import whole
from weft.plan.attention import Sizes, check

FAR = 2**22  # elements from a row to the next; then offsets within a tile fit into 32 bits
TINY = 2.0**-126  # the least scale: 0 * -inf would be NaN
TYPES = (torch.float16, torch.bfloat16, torch.float32)


class Problem(NamedTuple):
    """What one call is about, ready for kernels; `scale` has log2(e) folded in."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    causal: bool
    scale: float
    sizes: Sizes
    target: str
    window: int | None = None

    def tile(self, name: str) -> KernelTile:
        """The tile that is tuned for a pass."""
        width = max(padded(self.sizes.K), padded(self.sizes.V))
        tuned = tile if self.window is None else in_window
        return tuned(self.target, name, self.q.element_size(), width)

    def programs(self, side: str, tile: KernelTile) -> int:
        """How many tiles there are in all heads: of queries for the side "q", of keys for "k"."""
        B, T, S, H, G, _, _ = self.sizes
        return B * (H * triton.cdiv(T, tile.q) if side == "q" else G * triton.cdiv(S, tile.k))

    def per_row(self) -> Tensor:
        """Room for a number for each row, [B, T, H]: those of a head are neighbours."""
        B, T, H = self.q.shape[:3]
        return self.q.new_empty(B, H, T, dtype=torch.float32).transpose(1, 2)

    def launch(
        self, name: str, kernel, programs: int, tile: KernelTile, **arguments: object
    ) -> None:
        """Start so many programs of a kernel, on these arguments and those that all passes share.

        What is given by name goes first; what the kernel does not ask for is left out.
        """
        _, T, S, H, G, K, V = self.sizes
        mask = None if self.mask is None else MaskView(self.mask, *self.mask.stride())
        arguments = {
            "q": view(self.q), "k": view(self.k), "v": view(self.v), "mask": mask,
            "window": self.window, "T": T, "S": S, "H": H, "R": H // G, "scale": self.scale,
            "K": K, "V": V, "CAUSAL": self.causal, "TILE_Q": tile.q, "TILE_K": tile.k,
            "EDGE": tile.edge, "WARPS": tile.warps,
        } | arguments  # fmt: skip
        asked = {name: x for name, x in arguments.items() if name in kernel.arg_names}
        launch(name, kernel, (programs,), **asked, **tile.options())


def problem(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, mask, window=None
) -> Problem:
    """Check the arguments of a call, and bring them into the form that kernels take.

    A row must lie in one piece: a tensor whose last dim has a stride, or whose rows are more than
    FAR apart, is copied. All other strides and alignments are taken as they are.
    """
    sizes = check(q, k, v, mask, scale)
    if q.dtype not in TYPES:
        kind = str(q.dtype).removeprefix("torch.")
        raise ValueError(f"q is {kind}, must be float16, bfloat16 or float32 for a kernel")
    for name, width in (("q", sizes.K), ("v", sizes.V)):
        if width > WIDEST:
            raise ValueError(f"{name} has width {width}, must be at most {WIDEST} for a kernel")
    if window is not None:
        window = whole("window", window)
        if not causal:
            raise ValueError(f"window is {window}, must be None unless causal is True")
        window = window if window < sizes.S else None  # nothing is further away
    target = chip(q.device)
    if mask is not None:
        mask = mask.expand(sizes.B, sizes.H, sizes.T, sizes.S).view(torch.uint8)
    scale = sizes.K**-0.5 if scale is None else scale
    q, k, v = (in_rows(x) for x in (q, k, v))
    scale = max(scale * log2(e), TINY)
    return Problem(q, k, v, mask, bool(causal), scale, sizes, target, window)


def in_rows(x: Tensor) -> Tensor:
    """The tensor, or a copy where its rows are not in one piece or too far apart."""
    whole = x.stride(-1) == 1 or x.shape[-1] == 1
    return x if whole and x.stride(1) <= FAR else x.contiguous()


def view(x: Tensor | None) -> View | None:
    """A tensor [B, T, H, ...] for a kernel."""
    return None if x is None else View(x, *x.stride()[:3])
