"""From tensors to a running kernel: descriptors for the copy engine, and where it runs.

On a Hopper GPU a kernel is launched. On CPU tensors, where Triton interprets (`weft.kernels`), it
goes through `weft.kernels.gluon.interpreter`: the same function, slowly, and watched.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count

import torch
from torch import Tensor

from weft.kernels.code import recorded_target, written
from weft.kernels.gluon import TensorDescriptor, gl, interpreter
from weft.plan.hopper import in_groups, table

L2 = 32 * 2**20  # bytes that keys and values may count on, of the 50 MiB that a Hopper GPU has
BLOCKS = 3  # that the interpreter pretends to run at once: enough that one has several pieces
SEEDS = count()  # a new order of events for every interpreted kernel, the same ones in every run


def blocks(device: torch.device) -> int:
    """How many blocks run at once: one on each multiprocessor."""
    if device.type != "cuda":
        return BLOCKS
    return torch.cuda.get_device_properties(device).multi_processor_count


def work(
    rule: Callable[..., tuple[range, tuple[int, ...]]],
    device: torch.device,
    T: int,
    S: int,
    heads: int,
    together: int,
    rows: int,
    keys: int,
    causal: bool,
    programs: int,
) -> Tensor:
    """Which block does which piece of work, for a kernel to read: `plan.hopper.table`'s numbers.

    `rule` is `plan.hopper.by_queries` or `by_keys`. Lengths with the same tiles, of the same
    costs, share a table: it is made once and sent once. A CUDA graph that is being captured has
    to copy for itself, for what is sent then arrives when the graph is replayed.
    """
    tiles, costs = rule(T, S, rows, keys, causal)
    kind = heads, together, tiles, costs, programs
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        numbers = _dealt(True, *kind)
        CAPTURED.append(numbers)
        return numbers.to(device, non_blocking=True)
    return _sent(device, *kind)


CAPTURED: list[Tensor] = []  # what graphs copy from whenever they are replayed


@lru_cache(maxsize=256)
def _sent(device: torch.device, *kind) -> Tensor:
    pinned = device.type == "cuda"
    return _dealt(pinned, *kind).to(device, non_blocking=pinned)


@lru_cache(maxsize=256)
def _dealt(pinned: bool, *kind) -> Tensor:
    """The table in the host's memory; from pinned memory a copy neither blocks nor is refused."""
    numbers = torch.frombuffer(table(in_groups(*kind)), dtype=torch.int32)
    return numbers.pin_memory() if pinned else numbers


def heads_in_cache(S: int, row_bytes: int, R: int) -> int:
    """How many heads have their keys and values in the L2 cache together; R share them."""
    return max(1, L2 // (S * row_bytes)) * R


def layout(row: int, bits: int, rank: int):
    """How a tile lies in shared memory: as swizzled as a row allows, for products want it so."""
    swizzle = 0 if rank == 2 else min(128, row * bits // 8)
    return gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=bits, rank=rank)


def described(x: Tensor, rows: int, box: list[int] | None = None) -> TensorDescriptor:
    """x [B, T, H, K] for the copy engine, a head's `rows` at a time; x [N, T], a row's."""
    box = box or ([1, rows] if x.dim() == 2 else [1, rows, 1, x.shape[3]])
    bits = 8 * x.element_size()
    # Where there is one, no step is taken: any will do that is a multiple of 16 bytes.
    steps = [step if n > 1 else 128 for n, step in zip(x.shape, x.stride(), strict=True)]
    tile = layout(box[-1], bits, x.dim())
    return TensorDescriptor(x, list(x.shape), [*steps[:-1], 1], box, tile)


def aligned(x: Tensor) -> Tensor:
    """x, or a copy of it if the copy engine cannot read it: steps must be multiples of 16 bytes."""
    bad = any(
        size > 1 and (step == 0 or step * x.element_size() % 16)
        for size, step in zip(x.shape[:-1], x.stride()[:-1], strict=True)
    )
    if bad or x.stride(-1) != 1 or x.data_ptr() % 16:
        return x.clone(memory_format=torch.contiguous_format)
    return x


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """ValueError unless value is one of them."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, must be one of {', '.join(map(str, choices))}")


def check_device(name: str, x: Tensor) -> None:
    """ValueError unless x lies where these kernels run."""
    if x.device.type == "cuda" and torch.cuda.get_device_capability(x.device)[0] == 9:
        return
    if x.device.type == "meta" and recorded_target():
        return
    if x.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return
    raise ValueError(
        f"{name} is on {x.device}, must be on a Hopper GPU (compute capability 9.0), or on the cpu"
        " with TRITON_INTERPRET=1"
    )


def launch(name: str, kernel, programs: int, args: Sequence, warps: int = 4, **constexprs) -> None:
    """Run `programs` blocks of a kernel where its first tensor lies, or write down that it would.

    The latter within `weft.kernels.code.record.recording`, under that name.
    """
    if written(name, kernel, args, constexprs | {"num_warps": warps}):
        return
    first = args[0].base if isinstance(args[0], TensorDescriptor) else args[0]
    if first.device.type == "cpu":
        interpreter.run(kernel, programs, args, seed=next(SEEDS), **constexprs)
    else:
        with torch.cuda.device(first.device):
            kernel[(programs,)](*args, **constexprs, num_warps=warps)
