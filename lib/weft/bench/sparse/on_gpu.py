"""Windows on a GPU: ours beside FlexAttention's and FlashAttention's, and beside dense attention.

All take the same tensors and take turns, with cold caches, lists and masks made beforehand. A rate
counts the pairs that are seen, 4 K FLOPs each: dense attention's all causal pairs, so a window that
costs what its pairs cost has dense attention's rate. SDPA under a mask computes every pair and is
given the window's alone. cuDNN has windows, but torch's call of it does not take one.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from weft.bench.attention import OURS, WRONG, inputs
from weft.bench.clock import OneDevice
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement, rates
from weft.kernels.attention import attention
from weft.kernels.sparse import longformer
from weft.plan.sparse import pairs
from weft.ref.attention import attention as reference

LISTS, DENSE, FLEX = f"{OURS}, lists", f"{OURS}, dense", "flex"
BLOCK = 128  # queries and keys of a block of FlexAttention
MASKED = 4096  # tokens; a mask of more would be all that is measured
CHECKED = 1024  # queries, the last ones
WAYS = {"forward": 1.0, "forward and backward": 3.5}  # five products of tiles to two
Face = Callable[[Tensor, Tensor, Tensor], Tensor]  # o [B, T, H, K] of q, k and v


class WindowSizes(NamedTuple):
    """Lengths and windows, the query included; so many tokens, or one sequence if that is more."""

    lengths: tuple[int, ...] = (4096, 16_384, 65_536, 131_072)
    windows: tuple[int, ...] = (256, 1024, 4096)
    tokens: int = 32_768
    hidden: int = 2048
    width: int = 128
    warmup: int = 2
    repeats: int = 8


FULL = WindowSizes()


def windows(run: BenchRun, sizes: WindowSizes = FULL) -> Found:
    """FLOP/s of everyone by length and window, forward alone and with the backward pass."""
    clock, results = run.clock(sizes.warmup, sizes.repeats, cold=True), []
    for length in run.each(sizes.lengths, "sequences of {} tokens"):
        tensors = inputs(sizes.tokens, sizes.hidden, length, sizes.width, clock.device)
        results += one_length(clock, tensors, [w for w in sizes.windows if w < length])
    heads = f"{sizes.hidden // sizes.width} heads of width {sizes.width}"
    return f"Causal windows, bf16, {heads}, {sizes.tokens} tokens or one sequence", results


WINDOW = BenchJob("sparse-window", windows, ("cuda",), seconds=420)


def size(way: str, T: int, window: int) -> str:
    """What a measurement is called."""
    return f"{way}, T = {T}, window = {window}"


def one_length(
    clock: OneDevice, tensors: Sequence[Tensor], chosen: Sequence[int]
) -> list[Measurement]:
    """Every window of one length and everyone who is right, in the same rounds."""
    *qkv, do = tensors
    B, T, H, K = do.shape
    torch._dynamo.reset()  # it compiles a function for eight shapes and masks, and then no more
    faces: dict[tuple[str, int], Face] = {(DENSE, T): partial(attention, causal=True)}
    for window in chosen:
        faces |= {(who, window): face for who, face in contest(T, window, do.device).items()}
    right = {
        case: face for case, face in faces.items() if accepted(*case, face, qkv, do)
    }  # a peer that does not run here is left out
    results = []
    for way, products in WAYS.items():
        samples = clock.samples({case: timed(face, qkv, do, way) for case, face in right.items()})
        for window in chosen:
            taken = {who: s for (who, w), s in samples.items() if w in (window, T)}
            seen = {DENSE: pairs(T, T, causal=True)}
            flops = {
                who: products * 4 * B * H * K * seen.get(who, pairs(T, window - 1, causal=True))
                for who in taken
            }
            found = rates(size(way, T, window), "FLOP/s", flops, taken)
            results += [*found.values(), found[OURS].over(found[DENSE])]
            results += [found[OURS].over(found[FLEX])] if FLEX in found else []
    return results


# --- who takes part -------------------------------------------------------------------------------


def contest(T: int, window: int, device: torch.device) -> dict[str, Face]:
    """Who computes a causal window of so many keys, the query's own included."""
    found: dict[str, Face] = {
        OURS: partial(attention, causal=True, window=window),
        LISTS: partial(longformer, window=window - 1, causal=True),
        FLEX: flex(T, window, device),
        "flash": partial(flash, window),
    }
    if T <= MASKED:
        back = torch.arange(T, device=device).unsqueeze(1) - torch.arange(T, device=device)
        found["sdpa, mask"] = partial(sdpa, (back >= 0) & (back < window))
    try:
        from flash_attn_interface import flash_attn_func

        found["flash 3"] = partial(flash_attn_func, causal=True, window_size=(window - 1, 0))
    except ImportError:
        pass
    return found


def flex(T: int, window: int, device: torch.device) -> Face:
    """FlexAttention, compiled once for a length and a window, on a GPU; elsewhere as it is."""
    mask = block_mask(T, window, device)
    on_gpu = device.type == "cuda"
    run = torch.compile(flex_attention, dynamic=False) if on_gpu else flex_attention
    return lambda q, k, v: run(*(x.transpose(1, 2) for x in (q, k, v)), block_mask=mask).transpose(
        1, 2
    )


def block_mask(T: int, window: int, device: torch.device) -> BlockMask:
    """The lists of a window's blocks; torch's create_block_mask would make all T T pairs first."""
    at = torch.arange(-(-T // BLOCK), device=device) * BLOCK
    nearest = at.unsqueeze(1) - at - (BLOCK - 1)  # the least distance i - j in a block
    furthest = nearest + 2 * (BLOCK - 1)
    touched = (furthest >= 0) & (nearest < window)
    full = (nearest >= 0) & (furthest < window) & (at + BLOCK <= T)
    listed = []
    for some in (touched & ~full, full):
        order = some.int().argsort(dim=-1, descending=True, stable=True).int()
        listed += [some.sum(-1).int()[None, None], order[None, None]]

    def seen(b, h, i, j):
        return (i >= j) & (i - j < window)

    return BlockMask.from_kv_blocks(*listed, BLOCK_SIZE=BLOCK, mask_mod=seen, seq_lengths=(T, T))


def flash(window: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """FlashAttention-2 as torch carries it, by the operator that takes a window."""
    T = q.shape[1]
    sides = {"window_size_left": window - 1, "window_size_right": 0}
    given = (None, None, T, T, 0.0, False, False)
    return torch.ops.aten._flash_attention_forward(q, k, v, *given, **sides)[0]


def sdpa(mask: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's choice for a mask of pairs."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


# --- whose time counts ----------------------------------------------------------------------------


def timed(face: Face, qkv: Sequence[Tensor], do: Tensor, way: str) -> Callable[[], object]:
    """A forward pass as in training, or one with the gradients of q, k and v."""
    if way == "forward":
        return lambda: face(*qkv)

    def both() -> tuple[Tensor, ...]:
        o = face(*qkv)
        return o.detach(), *torch.autograd.grad(o, qkv, do)

    return both


def accepted(who: str, window: int, face: Face, qkv: Sequence[Tensor], do: Tensor) -> bool:
    """Whether a contestant runs here; one that does and is wrong is an AssertionError.

    Compared are the last rows of o and of the gradients, for the last head of the first sequence:
    no query before them sees their keys, so they are attention of few rows by the definition.
    """
    try:
        found = timed(face, qkv, do, "both")()
    except Exception as error:  # compilers have exceptions of many kinds
        if who.startswith(OURS):
            raise
        left_out(who, next(iter(str(error).splitlines()), type(error).__name__))
        return False
    n = min(CHECKED, do.shape[1])
    for a, b in zip(found, by_definition(qkv, do, window, n), strict=True):
        error = ((_last(a, n) - b).norm() / b.norm()).item()
        if not error <= WRONG:
            raise AssertionError(f"{who} is wrong by {error:.3g} of the result, window {window}")
    return True


@cache
def left_out(who: str, why: str) -> None:
    """Say who does not run here and why, once."""
    print(f"{who} does not run here: {why[:200]}", file=sys.stderr)


def by_definition(qkv: Sequence[Tensor], do: Tensor, window: int, n: int) -> list[Tensor]:
    """The last n rows of o, dq, dk and dv in float64, from the keys that these queries see."""
    keys = min(do.shape[1], n + window - 1)
    q, k, v, do = (
        _last(x, m).double() for x, m in zip((*qkv, do), (n, keys, keys, n), strict=True)
    )
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    back = torch.arange(keys - n, keys, device=q.device).unsqueeze(1)
    back = back - torch.arange(keys, device=q.device)
    o = reference(q, k, v, mask=(back >= 0) & (back < window))
    return [x.detach()[:, -n:] for x in (o, *torch.autograd.grad(o, (q, k, v), do))]


def _last(x: Tensor, rows: int) -> Tensor:
    """The last rows of the last head of the first sequence."""
    return x[:1, -rows:, -1:].detach()
