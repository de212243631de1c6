"""From tensors to launches: what attention accepts, and how a kernel is told of it."""

from math import e, log2
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.attention.tuned import WIDEST, Tile, chip, padded, tile
from weft.kernels.code import Pass
from weft.plan.attention import Sizes, check

FAR = 2**22  # elements from a row to the next; then offsets within a tile fit into 32 bits
TINY = 2.0**-126  # the least scale: 0 * -inf would be NaN
TYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.uint8: "u8"}


class Problem(NamedTuple):
    """What one call is about, ready for kernels; `scale` has log2(e) folded in.

    Where `passes` is a list, nothing is launched: what would have been is written down there.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    causal: bool
    scale: float
    sizes: Sizes
    target: str
    passes: list[Pass] | None = None

    def tile(self, name: str) -> Tile:
        """The tile that is tuned for a pass."""
        width = max(padded(self.sizes.K), padded(self.sizes.V))
        return tile(self.target, name, self.q.element_size(), width)

    def inputs(self) -> dict[str, object]:
        """The arguments that all passes over q, k and v share."""
        _, T, S, H, G, K, V = self.sizes
        return {
            **pointer("q", self.q, "q", "bth"), **pointer("k", self.k, "k", "bsg"),
            **pointer("v", self.v, "v", "bsg"), **pointer("mask", self.mask, "m", "bhts"),
            "T": T, "S": S, "H": H, "R": H // G, "scale": self.scale, "K": K, "V": V,
            "WIDE_K": padded(K), "WIDE_V": padded(V), "CAUSAL": self.causal,
        }  # fmt: skip

    def launch_mended(self, name: str, kernel, odd, by: str, **arguments: object) -> None:
        """Launch a pass and, where there are pairs that are not seen, the one that mends its tiles.

        It has a program for each tile of its result, of queries or of keys: `by` is "q" or "k".
        """
        B, T, S, H, G, _, _ = self.sizes
        rows, heads = (T, H) if by == "q" else (S, G)
        arguments |= self.inputs() | {"p_flaw": None}
        passes = {name: kernel}
        if self.causal or self.mask is not None:
            arguments["p_flaw"] = self.q.new_empty(B, heads, rows, dtype=torch.float32)
            passes[f"{name}_odd"] = odd
        for name, kernel in passes.items():
            tile = self.tile(name)
            programs = triton.cdiv(rows, getattr(tile, by)) * heads * B
            self.launch(name, kernel, programs, tile, **arguments)

    def launch(self, name: str, kernel, programs: int, tile: Tile, **arguments: object) -> None:
        """Start so many programs of a kernel, or write down what a compiler has to know of it.

        What the kernel does not ask for is left out.
        """
        arguments |= {"TILE_Q": tile.q, "TILE_K": tile.k, "EDGE": tile.edge, "WARPS": tile.warps}
        arguments = {name: x for name, x in arguments.items() if name in kernel.arg_names}
        options = {"num_warps": tile.warps, "num_stages": tile.stages}
        if tile.registers:
            options["maxnreg"] = tile.registers
        if self.passes is not None:
            self.passes.append(Pass(name, kernel, *types(kernel, arguments), options))
            return
        with torch.cuda.device_of(self.q):
            kernel[(programs,)](**arguments, **options)


def problem(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, mask) -> Problem:
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
    target = chip(q.device)
    if mask is not None:
        mask = mask.expand(sizes.B, sizes.H, sizes.T, sizes.S).view(torch.uint8)
    scale = sizes.K**-0.5 if scale is None else scale
    q, k, v = (in_rows(x) for x in (q, k, v))
    return Problem(q, k, v, mask, bool(causal), max(scale * log2(e), TINY), sizes, target)


def in_rows(x: Tensor) -> Tensor:
    """The tensor, or a copy where its rows are not in one piece or too far apart."""
    whole = x.stride(-1) == 1 or x.shape[-1] == 1
    return x if whole and x.stride(1) <= FAR else x.contiguous()


def pointer(name: str, tensor: Tensor | None, letter: str, dims: str) -> dict[str, object]:
    """A tensor as kernels take it: p_name, and the stride of each dim that is named."""
    strides = [0] * len(dims) if tensor is None else tensor.stride()
    pairs = zip(dims, strides, strict=False)
    return {f"p_{name}": tensor} | {f"stride_{letter}{dim}": stride for dim, stride in pairs}


def types(kernel, arguments: dict[str, object]) -> tuple[dict[str, str], dict[str, object]]:
    """The signature and the constants with which Triton would compile a launch.

    As it does itself: None and 1 become constants, and a multiple of 16 is known to be one.
    """
    signature, constants = {}, {}
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            signature[name] = f"*{TYPES[value.dtype]}:16"
        elif kernel.fn.__annotations__.get(name) is tl.constexpr or value in (None, 1):
            constants[name] = value
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            kind = "i32" if value < 2**31 else "i64"
            signature[name] = kind if value % 16 else f"{kind}:16"
    return signature, constants


def example(target: str, dtype=torch.bfloat16, width: int = 128, causal: bool = True) -> Problem:
    """What passes(target) compiles: 16 heads of 4096 queries and keys, in no memory at all."""
    q, k, v = (torch.empty(2, 4096, 16, width, dtype=dtype, device="meta") for _ in range(3))
    scale = width**-0.5 * log2(e)
    return Problem(q, k, v, None, causal, scale, check(q, k, v), target, [])
