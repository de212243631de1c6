"""A small decoder on the book's text, with windows that grow by layer and without.

All variants begin with the same weights, read the same text in the same order, and are asked for
the bytes of a part that none has read. A processor has no kernel for windows: here a window is
attention over blocks of as many queries, each to its own keys and those of the block before, by
torch's scaled_dot_product_attention. It computes twice the pairs that it sees, and its time goes
with T, where full attention's goes with T squared in the end. The losses are those of any kernel;
the times are a processor's, for one thread.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from weft.bench.clock import Call
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.nn.transformer import Block, Config, Embedding, Head, causal, loss

BOOK = Path(__file__).parents[4] / "book"
TRAINED = 0.9  # of the text; the rest is asked for


class GrowingSizes(NamedTuple):
    """The decoder, the windows of its layers in each variant, none for full attention, and times.

    Variants with windows see about as many pairs as each other. `timed` are lengths of one
    sequence, of which a forward and a backward pass are timed.
    """

    config: Config = Config(layers=4, width=64, heads=4, seq=256)
    variants: tuple[tuple[int, ...], ...] = ((), (8, 16, 32, 64), (30, 30, 30, 30))
    batch: int = 4
    steps: int = 400
    every: int = 100  # steps between two points of a curve
    rate: float = 8e-3
    seeds: int = 1
    tested: int = 32  # sequences
    timed: tuple[int, ...] = (256, 1024, 4096)
    rounds: tuple[int, int] = (1, 5)


FULL = GrowingSizes()


def growing(run: BenchRun, sizes: GrowingSizes = FULL) -> Found:
    """The loss of each variant at points of its training, and seconds of a step over T.

    A sample of a loss is a seed, of weights and of what is read.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = [*_losses(run, sizes), *_times(run, sizes)]
    finally:
        torch.set_num_threads(threads)
    layers, width, heads = sizes.config.layers, sizes.config.width, sizes.config.heads
    title = (
        f"A decoder of {layers} layers, width {width}, {heads} heads, on the book's text: loss on "
        f"what it has not read after steps of {sizes.batch} × {sizes.config.seq} bytes; and a step "
        f"on one sequence of T bytes, in one thread"
    )
    return title, results


GROWING = BenchJob("sparse-growing", growing)


def said(sights: Sequence[int]) -> str:
    """A variant's name."""
    if not sights:
        return "full attention"
    same = len(set(sights)) == 1
    return f"windows {sights[0]}" if same else f"windows {', '.join(map(str, sights))}"


def decoder(config: Config, sights: Sequence[int]) -> nn.Sequential:
    """weft.nn.transformer's, with a window in each layer, or full attention where none is given."""
    ways = [partial(windowed, window=window) for window in sights] or [causal] * config.layers
    return nn.Sequential(Embedding(config), *(Block(config, way) for way in ways), Head(config))


def windowed(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Causal attention to a query's own key and the `window` before it; [B, T, H, K] in and out.

    A block has `window` queries, so all that they see is in it or in the block before.
    """
    B, T, H, K = q.shape
    size = min(window, T)
    blocks = -(-T // size)
    end = blocks * size - T
    q = pad(q, (0, 0, 0, 0, 0, end)).unflatten(1, (blocks, size)).flatten(0, 1).transpose(1, 2)
    k, v = (
        pad(x, (0, 0, 0, 0, size, end)).unfold(1, 2 * size, size).flatten(0, 1).transpose(2, 3)
        for x in (k, v)
    )  # [B * blocks, H, 2 size, K]
    key = torch.arange(2 * size)
    back = size + torch.arange(size).unsqueeze(1) - key
    near = (back >= 0) & (back <= window)
    begins = near & (key >= size)  # before the first block there are no keys
    mask = torch.stack([begins] + [near] * (blocks - 1)).repeat(B, 1, 1).unsqueeze(1)
    o = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return o.transpose(1, 2).reshape(B, blocks * size, H, K)[:, :T]


def book() -> Tensor:
    """The bytes of the book's pages, one after the other; ValueError where they are not here."""
    text = b"".join(page.read_bytes() for page in sorted(BOOK.glob("*.md")))
    if not text:
        raise ValueError(f"this needs the book's pages: {BOOK} has none")
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def passages(text: Tensor, T: int, count: int, dice: torch.Generator) -> Tensor:
    """T + 1 bytes from each of `count` random places, [count, T + 1]."""
    starts = torch.randint(len(text) - T, (count, 1), generator=dice)
    return text[starts + torch.arange(T + 1)]


def _losses(run: BenchRun, sizes: GrowingSizes) -> Iterator[Measurement]:
    """The curve of each variant, with a sample for each seed."""
    for sights in run.each(sizes.variants, "training, windows {}"):
        curves = [list(_curve(sights, sizes, seed)) for seed in range(sizes.seeds)]
        for i, points in enumerate(zip(*curves, strict=True), start=1):
            name = f"loss, step {i * sizes.every}"
            yield Measurement.of(name, said(sights), "nat", points)


def _curve(sights: Sequence[int], sizes: GrowingSizes, seed: int) -> Iterator[float]:
    """Train; the loss on text that is not read, every so many steps."""
    torch.manual_seed(seed)
    model, text, T = decoder(sizes.config, sights), book(), sizes.config.seq
    cut, dice = int(len(text) * TRAINED), torch.Generator().manual_seed(seed)
    asked = passages(text[cut:], T, sizes.tested, torch.Generator().manual_seed(sizes.seeds))
    optimizer = torch.optim.AdamW(model.parameters(), lr=sizes.rate)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, sizes.rate, total_steps=sizes.steps)
    for step in range(1, sizes.steps + 1):
        _pass(model, passages(text[:cut], T, sizes.batch, dice))()
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
        if step % sizes.every == 0:
            with torch.no_grad():
                yield loss(model(asked[:, :-1]), asked[:, 1:]).item()


def _pass(model: nn.Module, tokens: Tensor) -> Call:
    """A forward and a backward pass."""
    return lambda: loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()


def _times(run: BenchRun, sizes: GrowingSizes) -> Iterator[Measurement]:
    """Seconds of a forward and a backward pass of one sequence, all variants in turns."""
    clock = run.clock(*sizes.rounds)
    for T in run.each(sizes.timed, "a step, T = {}"):
        config = Config(**vars(sizes.config) | {"seq": T})
        tokens = book()[: T + 1].unsqueeze(0)
        calls = {said(s): _pass(decoder(config, s), tokens) for s in sizes.variants}
        for who, taken in clock.samples(calls).items():
            yield Measurement.of(f"step, T = {T}", who, "s", taken)
