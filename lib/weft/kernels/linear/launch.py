"""From tensors to launches: what the chunked forms accept, and how a kernel is told of it."""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from weft.kernels.attention import TYPES, WIDEST, View, chip, in_rows, padded
from weft.kernels.code import launch
from weft.kernels.linear.tile import StateView
from weft.kernels.linear.tuned import ChunkTile, tile
from weft.plan.linear import StateSizes, check, check_chunk, check_per_token, check_state
from weft.plan.tensors import dtype_of

LONGEST_CHUNK = 128


class ChunkProblem(NamedTuple):
    """What one call is about, ready for kernels: q, k, v and the logarithms of the decays."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor | None  # [B, T, H] or [B, T, H, K]; None where nothing fades
    sizes: StateSizes
    chunk: int
    target: str
    left: Tensor | None = None  # of decays by channel, what `channels.added_up` makes of them

    @property
    def chunks(self) -> int:
        """Chunks of a head, N."""
        return triton.cdiv(self.sizes.T, self.chunk)

    def states(self) -> Tensor:
        """Room for the state at one end of each chunk, [B, H, N, K, V].

        In bf16 where the products that they go into are, else in fp32: fp16 would end at 65504.
        """
        B, _, H, K, V = self.sizes
        kept = torch.bfloat16 if self.q.dtype == torch.bfloat16 else torch.float32
        return self.q.new_empty(B, H, self.chunks, K, V, dtype=kept)

    def state(self) -> Tensor:
        """Room for one state of each head, [B, H, K, V]."""
        B, _, H, K, V = self.sizes
        return self.q.new_empty(B, H, K, V, dtype=torch.float32)

    def tile(self, name: str, K: int, V: int) -> ChunkTile:
        """The tile that is tuned for a pass."""
        return tile(self.target, name, self.q.element_size(), self.chunk, padded(K), padded(V))

    def launch(
        self, name: str, kernel, tiles: tuple[str, ...], K: int, V: int, **arguments: object
    ) -> None:
        """Start a program for each head and each tile of "T", "K" and "V" that are named.

        K and V are the widths as this launch sees them. What the kernel does not ask for is left
        out.
        """
        B, T, H, *_ = self.sizes
        one, N = self.tile(name, K, V), self.chunks
        TILES_K, TILES_V = triton.cdiv(K, one.k), triton.cdiv(V, one.v)
        counts = {"T": N, "K": TILES_K, "V": TILES_V}
        programs = B * H
        for dim in tiles:
            programs *= counts[dim]
        if programs == 0:
            return
        arguments |= {
            "g": view(self.g), "left": view(self.left), "T": T, "H": H, "N": N,
            "CHUNK": self.chunk, "K": K, "V": V, "TILE_T": padded(self.chunk), "TILE_K": one.k,
            "TILE_V": one.v, "EXACT": self.q.dtype == torch.float32,
        }  # fmt: skip
        asked = {name: x for name, x in arguments.items() if name in kernel.arg_names}
        launch(name, kernel, (programs,), **asked, **one.options())


def problem(q: Tensor, k: Tensor, v: Tensor, log_decay, initial, chunk: int) -> ChunkProblem:
    """Check the arguments of a call, and bring them into the form that kernels take.

    On a GPU no decay is looked at, since that would have to wait for it.
    """
    sizes = check(q, k, v)
    if log_decay is not None:
        look = q.device.type == "cpu"
        check_per_token("log_decay", log_decay, q, per_channel=True, look=look)
    if initial is not None:
        check_state("initial", initial, "[B, H, K, V]", (sizes.B, sizes.H, sizes.K, sizes.V), q)
    if check_chunk(chunk) > LONGEST_CHUNK:
        raise ValueError(f"chunk is {chunk}, must be at most {LONGEST_CHUNK} for a kernel")
    if q.dtype not in TYPES:
        raise ValueError(f"q is {dtype_of(q)}, must be float16, bfloat16 or float32 for a kernel")
    for name, width in (("q", sizes.K), ("v", sizes.V)):
        if width > WIDEST:
            raise ValueError(f"{name} has width {width}, must be at most {WIDEST} for a kernel")
    if log_decay is not None:
        log_decay = log_decay.float() if log_decay.dtype == torch.float64 else log_decay
        log_decay = in_rows(log_decay)
    q, k, v = (in_rows(x) for x in (q, k, v))
    return ChunkProblem(q, k, v, log_decay, sizes, check_chunk(chunk), chip(q.device))


def view(x: Tensor | None) -> View | None:
    """A tensor [B, T, H, ...] for a kernel."""
    return None if x is None else View(x, *x.stride()[:3])


def state_view(s: Tensor, transposed: bool = False) -> StateView:
    """States for a kernel, or the transposed of each."""
    K, V = s.stride()[-2:]
    return StateView(s, V, K) if transposed else StateView(s, K, V)
