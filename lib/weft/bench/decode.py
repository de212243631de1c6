"""Generation with a cache and without, the waste of two caches counted, and the kernels timed.

`weft bench decode` measures what one more token costs as the context grows: by running all tokens
again, from a cache with a row reserved for each sequence, and from one in blocks. Then a queue of
requests is served by both caches with as many slots, on a real model, and what their slots held
is set beside the simulation. Where there is a GPU, weft.bench.decode_kernel adds its record.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from weft.bench import decode_kernel
from weft.bench.jobs import Job
from weft.bench.record import Record, Result
from weft.kernels.decode import paged_attention as kernel
from weft.nn.decode import Decoder, DecoderConfig, PagedCache, generate, prefill, step
from weft.plan.decode import CacheFull, ServingTurn, requests, serve
from weft.ref.attention import attention
from weft.ref.decode import paged_attention as reference

COMMAND = "weft bench decode"
NOTHING, ROWS, BLOCKS = "no cache", "rows", "blocks"  # who keeps what
Progress = Callable[[float, float, str], None]  # what is done, of how much, and what comes now


class Sizes(NamedTuple):
    """The model, sequences and contexts of one step; the requests and the slots of the queue."""

    config: DecoderConfig = DecoderConfig(layers=4, width=256, heads=8, kv_heads=2, seq=1024)
    batch: int = 4
    contexts: tuple[int, ...] = (64, 256, 1024)
    block: int = 16
    queue: DecoderConfig = DecoderConfig(layers=2, width=64, heads=4, kv_heads=2, seq=256)
    asked: int = 40
    prompt: float = 20
    output: float = 40
    slots: int = 1024
    warmup: int = 1
    repeats: int = 7


FULL = Sizes()


def bench(progress: Progress, sizes: Sizes = FULL, device: str | None = None) -> Iterator[Record]:
    """The records of the kernels where there is a GPU, of generation and of memory."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda":
        yield from decode_kernel.bench(progress)
    yield generation(progress, sizes, device)
    yield memory(progress, sizes, device)


def jobs(device: str | None = None) -> list[Job]:
    """Each record by itself, on `device` "cuda" or "cpu"; None is the GPU where there is one."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    made = {"decode-generation": generation, "decode-memory": memory}
    rest = [
        Job((name,), lambda progress, make=make: [make(progress, FULL, device)], 20)
        for name, make in made.items()
    ]
    kernels = Job(("decode-kernel",), decode_kernel.bench, 120)
    return [kernels, *rest] if device == "cuda" else rest


def generation(progress: Progress, sizes: Sizes, device: str) -> Record:
    """The record of one more token."""
    progress(0.0, 1.0, "one more token")
    with torch.inference_mode():
        steps = growing(sizes, device, progress)
    config = sizes.config
    how = "float32" + (f", {torch.get_num_threads()} threads" if device == "cpu" else "")
    title = (
        f"One more token for {sizes.batch} sequences: {config.layers} layers of width "
        f"{config.width}, {config.heads} heads on {config.kv_heads}, {how}"
    )
    return Record.here("decode-generation", title, "decode", COMMAND, steps, device)


def memory(progress: Progress, sizes: Sizes, device: str) -> Record:
    """The record of a queue."""
    progress(0.5, 1.0, "a queue of requests")
    with torch.inference_mode():
        found = queueing(sizes, device)
    title = f"{sizes.asked} requests on {sizes.slots} slots, a longest of {sizes.queue.seq}"
    return Record.here("decode-memory", title, "decode", COMMAND, found, device)


# --- one more token -------------------------------------------------------------------------------


def growing(sizes: Sizes, device: str, progress: Progress) -> list[Result]:
    """Tokens per second of one step at each context, the three ways in turns; and the ratios."""
    results = []
    for i, context in enumerate(sizes.contexts):
        progress(0.5 * i / len(sizes.contexts), 1.0, f"a context of {context}")
        ways = _ways(sizes, context, device)
        _demand_equal({name: call() for name, call in ways.items()})
        times: dict[str, list[float]] = {name: [] for name in ways}
        for repeat in range(sizes.warmup + sizes.repeats):
            for name in ways if repeat % 2 else reversed(ways):
                times[name].append(_seconds(ways[name], device))
        rates = {
            name: [sizes.batch / second for second in seconds[sizes.warmup :]]
            for name, seconds in times.items()
        }
        name = f"context {context}"
        results += [Result.of(name, who, "1/s", samples) for who, samples in rates.items()]
        for who in (NOTHING, ROWS):
            ratio = [a / b for a, b in zip(rates[BLOCKS], rates[who], strict=True)]
            results.append(Result.of(name, f"{BLOCKS} / {who}", "1", ratio))
    return results


def _ways(sizes: Sizes, context: int, device: str) -> dict[str, Callable[[], Tensor]]:
    """The last token's scores, [B, N], computed in each of the three ways."""
    torch.manual_seed(0)
    config, B = sizes.config, sizes.batch
    model = Decoder(config).to(device)
    tokens = torch.randint(config.vocab, (B, context), device=device)
    last, names = tokens[:, -1].tolist(), list(range(B))
    rows = Rows(model, B, config.seq)
    each = -(-context // sizes.block)
    blocks = PagedCache(model, B * each, sizes.block)
    for start in range(0, context, sizes.block):  # the sequences grow together: blocks lie mixed
        for name in names:
            (blocks.extend if start else blocks.add)(name, min(sizes.block, context - start))
    for name in names:
        rows.add(name, context)
        prefill_row(model, rows, name, tokens[name].tolist())
        prefill(model, blocks, name, tokens[name].tolist())
    return {
        NOTHING: lambda: model(tokens)[:, -1],
        ROWS: partial(step_rows, model, rows, names, last),
        BLOCKS: partial(step, model, blocks, names, last, paged=_paged(device)),
    }


def _paged(device: str) -> Callable[..., Tensor]:
    """Whose paged attention: the kernel's on a GPU; its interpreter would be no measure."""
    return kernel if device == "cuda" else reference


def _demand_equal(scores: dict[str, Tensor]) -> None:
    """Times of programs that do not do the same would mean nothing."""
    for name, got in scores.items():
        torch.testing.assert_close(
            got, scores[NOTHING], rtol=1e-3, atol=1e-3, msg=f"{name} gives other scores"
        )


def _seconds(call: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


# --- a row for each sequence ----------------------------------------------------------------------


class Rows:
    """A cache with a row of the longest length for each of so many sequences: the usual kind."""

    def __init__(self, model: Decoder, count: int, longest: int):
        config, like = model.config, model.head.tokens.weight
        G, K = config.kv_heads or config.heads, config.width // config.heads
        self.k, self.v = (like.new_zeros(config.layers, count, longest, G, K) for _ in range(2))
        self.free = list(range(count))[::-1]
        self.row: dict[int, int] = {}
        self.tokens: dict[int, int] = {}

    def add(self, name: int, tokens: int) -> None:
        """Give a sequence a row; CacheFull if none is free."""
        if not self.free:
            raise CacheFull(f"sequence {name} finds no row that is free", 1, 0)
        self.row[name], self.tokens[name] = self.free.pop(), tokens

    def extend(self, name: int) -> None:
        """There is room already."""
        self.tokens[name] += 1

    def drop(self, name: int) -> None:
        """The row is free."""
        self.free.append(self.row.pop(name))
        del self.tokens[name]


def run_rows(model: Decoder, rows: Rows, names: Sequence[int], tokens: Sequence) -> Tensor:
    """Run the last tokens [B, T] of some sequences, each in its row: scores [B, T, N]."""
    device = rows.k.device
    tokens_BT = torch.as_tensor(tokens, device=device)
    row = torch.tensor([rows.row[name] for name in names], device=device)
    ends = torch.tensor([rows.tokens[name] for name in names], device=device)
    positions_BT = ends[:, None] + torch.arange(-tokens_BT.shape[1], 0, device=device)
    S = max(rows.tokens[name] for name in names)
    sees_BTS = torch.arange(S, device=device) <= positions_BT[:, :, None]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows.k[layer, row[:, None], positions_BT] = k
        rows.v[layer, row[:, None], positions_BT] = v
        held = rows.k[layer, row, :S], rows.v[layer, row, :S]
        return attention(q, *held, mask=sees_BTS[:, None])

    return model(tokens_BT, positions_BT, attend)


def prefill_row(model: Decoder, rows: Rows, name: int, tokens: Sequence[int]) -> Tensor:
    """Run all tokens of one sequence: scores [T, N]."""
    return run_rows(model, rows, [name], [list(tokens)])[0]


def step_rows(model: Decoder, rows: Rows, names: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """Run the last token of several sequences: scores [B, N]."""
    return run_rows(model, rows, names, [[token] for token in tokens])[:, -1]


# --- a queue of requests --------------------------------------------------------------------------


def queueing(sizes: Sizes, device: str) -> list[Result]:
    """What the slots of both caches held while somebody waited, and what the simulation says."""
    torch.manual_seed(0)
    model = Decoder(sizes.queue).to(device)
    longest = sizes.queue.seq
    asked = requests(sizes.asked, 1, sizes.prompt, sizes.output, longest)
    dice = torch.Generator().manual_seed(1)
    prompts = [
        torch.randint(sizes.queue.vocab, (r.prompt,), generator=dice).tolist() for r in asked
    ]
    counts = [request.output for request in asked]
    results, made = [], {}
    for who, memory in ((ROWS, "reserved"), (BLOCKS, "paged")):
        served = serve(asked, sizes.slots, memory, sizes.block, longest)
        start = time.perf_counter()
        made[who], seen = _served(who, model, sizes, prompts, counts)
        rate = sum(counts) / (time.perf_counter() - start)
        crowded = [moment for moment in seen if moment.waiting] or seen
        for name, measured, simulated in (
            ("sequences at a time", _mean(m.running for m in crowded), served.running),
            (
                "slots with a token",
                _mean(m.used for m in crowded) / sizes.slots,
                served.shares["used"],
            ),
            ("steps", len(seen), served.steps),
            ("evictions", sum(m.evicted for m in seen), served.evictions),
        ):
            results.append(Result.of(name, who, "1", [float(measured)]))
            results.append(Result.of(name, f"{who}, simulated", "1", [float(simulated)]))
        results.append(Result.of("tokens made", who, "1/s", [rate]))
    if made[ROWS] != made[BLOCKS]:
        raise AssertionError("rows and blocks do not make the same tokens")
    return results


class Seen(NamedTuple):
    """One turn of a real cache: who runs, slots with a token, who waits, who had to go."""

    running: int
    used: int
    waiting: int
    evicted: int


def _served(
    who: str, model: Decoder, sizes: Sizes, prompts: list[list[int]], counts: list[int]
) -> tuple[list[list[int]], list[Seen]]:
    """The tokens that were made, and what was counted in each turn."""
    seen, waiting = [], set(range(len(prompts)))

    def watch(turn: ServingTurn) -> None:
        waiting.difference_update(turn.admitted)
        waiting.update(turn.evicted)
        running = len(turn.grown) + len(turn.admitted)
        if who == ROWS:
            used = sum(cache.tokens.values())
        else:
            used = sum(cache.books.filled.values())
        seen.append(Seen(running, used, len(waiting), len(turn.evicted)))

    if who == ROWS:
        cache = Rows(model, sizes.slots // sizes.queue.seq, sizes.queue.seq)
        how = {"prefill": prefill_row, "step": step_rows}
    else:
        cache = PagedCache(model, sizes.slots // sizes.block, sizes.block)
        how = {"step": partial(step, paged=_paged(model.head.tokens.weight.device.type))}
    return generate(model, cache, prompts, counts, watch=watch, **how), seen


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)
