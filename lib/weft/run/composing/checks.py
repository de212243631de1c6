"""What a trainer asks of its arguments, so that all ranks refuse them, and none waits."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weft.nn.transformer import Config
from weft.plan.arguments import few, instance, whole
from weft.plan.composing import Layout
from weft.plan.ring import lengths
from weft.run.collectives import agreed
from weft.run.composing.stages import TOKENS, schedule
from weft.run.digest import digest
from weft.run.world import World

DTYPES = torch.float32, torch.float64, torch.bfloat16


def check(
    config: Config, layout: Layout, optimizer: Callable, world: World, seed: int,
    dtype: torch.dtype, max_norm: float | None,
) -> None:  # fmt: skip
    """ValueError, on all ranks, for what no training can be made of, or differs between ranks."""
    instance(World, world=world)

    def mine() -> tuple[None, dict[str, Any]]:
        instance(Config, config=config)
        instance(Layout, layout=layout)
        if not callable(optimizer):
            kind = type(optimizer).__name__
            raise ValueError(f"optimizer is a {kind}, must be a function from parameters to one")
        whole("seed", seed, least=0)
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}, must be one of {', '.join(map(str, DTYPES))}")
        if max_norm is not None and not _is_positive(max_norm):
            raise ValueError(f"max_norm is {max_norm!r}, must be a number above 0, or None")
        check_devices(layout, world.size)
        check_fits(config, layout)
        told = {"config": repr(config), "layout": repr(layout), "seed": int(seed)}
        return None, told | {"dtype": str(dtype), "max_norm": max_norm}

    agreed(world, mine)


def check_optimizers(made: Sequence[Optimizer], world: World) -> None:
    """ValueError, on all ranks, where they have made optimizers that differ."""

    def mine() -> tuple[None, dict[str, Any]]:
        told = {type(one).__name__ for one in made}
        settings = {repr({k: x for k, x in group.items() if k != "params"}) for one in made
                    for group in one.param_groups}  # fmt: skip
        return None, {"optimizer": " ".join([*sorted(told), *sorted(settings)])}

    agreed(world, mine)


def check_devices(layout: Layout, ranks: int) -> None:
    """ValueError unless a layout is for so many ranks."""
    if layout.devices != ranks:
        product = f"p * t * d * c = {layout.devices}"
        raise ValueError(f"layout has {product} devices, must have the world's {ranks} ranks")


def microbatches(config: Config, layout: Layout, batch: int, seq: int) -> int:
    """How many a step of `batch` sequences of `seq` tokens has under a layout.

    ValueError where the decoder, the batch or a sequence cannot be cut so.
    """
    instance(Config, config=config)
    instance(Layout, layout=layout)
    check_fits(config, layout)
    check_time(whole("seq", seq), layout)
    m = layout.microbatches(batch)
    few(m, "microbatches", batch=batch)
    schedule(layout, m)
    return m


def check_fits(config: Config, layout: Layout) -> None:
    """ValueError unless the decoder can be cut so."""
    stages = layout.p * layout.v
    if config.layers < stages:
        raise ValueError(
            f"config has {config.layers} layers, must have one for each of p * v = {stages} stages"
        )
    counts = {"heads": config.heads, "hidden": config.hidden or 4 * config.width}
    for name, count in (counts | {"vocab": config.vocab}).items():
        if count < layout.t:
            told = f"config has {name} = {count}"
            raise ValueError(f"{told}, must have at least one for each of t = {layout.t} ranks")
    found = getattr(config, "experts", 0)
    if layout.e > 1 and found < layout.e:
        told = f"config has {found} experts"
        raise ValueError(f"{told}, must have at least one for each of e = {layout.e} ranks")


def checked(
    batch: tuple[Tensor, Tensor], config: Config, layout: Layout, world: World
) -> tuple[Tensor, Tensor, int]:
    """Tokens, targets and the number of microbatches; ValueError, on all ranks, for what is wrong.

    All ranks tell each other a digest of the batch: had one another, nothing else would say so.
    """

    def mine() -> tuple[None, dict[str, Any]]:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ValueError(f"batch is a {type(batch).__name__}, must be (tokens, targets)")
        for name, x in zip(("tokens", "targets"), batch, strict=True):
            check_tokens(name, x, config)
        tokens, targets = batch
        if tokens.shape != targets.shape:
            shapes = f"{list(targets.shape)}, must be {list(tokens.shape)}, as tokens"
            raise ValueError(f"batch has targets of shape {shapes}")
        microbatches(config, layout, *tokens.shape)
        return None, {"the digest of batch": [_digest(x) for x in batch]}

    agreed(world, mine)
    return *batch, layout.microbatches(len(batch[0]))


def check_tokens(name: str, x: Tensor, config: Config) -> None:
    """ValueError unless they are [B, T] of the decoder's words."""
    if not isinstance(x, Tensor) or x.dtype != torch.int64 or x.dim() != 2 or not x.numel():
        what = f"{list(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"batch has {name} of {what}, must have [B, T] of torch.int64")
    low, high = int(x.min()), int(x.max())
    if low < 0 or high >= config.vocab:
        raise ValueError(
            f"batch has {name} from {low} to {high}, must have them from 0 to {config.vocab - 1}"
        )
    if x.shape[1] > config.seq:
        told = f"batch has {name} with {x.shape[1]} in time"
        raise ValueError(f"{told}, must have at most config's seq = {config.seq}")


def check_time(T: int, layout: Layout) -> None:
    """ValueError where T tokens cannot be dealt to the ranks of a sequence."""
    if layout.c > T:
        raise ValueError(f"batch has {T} tokens in time, must have one for each of c = {layout.c}")
    shares = [T] if layout.c == 1 else lengths(T, layout.c, TOKENS)
    if layout.sequence_parallel and any(share % layout.t for share in shares):
        each = "" if layout.c == 1 else f" on each of c = {layout.c} ranks, not {shares}"
        raise ValueError(
            f"batch has {T} tokens in time, must have a multiple of t = {layout.t}{each}, "
            "with sequence_parallel"
        )


def _digest(x: Tensor) -> str:
    return digest(memoryview(x.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()))


def _is_positive(value: object) -> bool:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and 0 < value <= math.inf
