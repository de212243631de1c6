"""A queue of requests on a real model, served by two caches with as many slots.

What their slots held is set beside the simulation.
"""

import time
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import torch

from weft.bench.decode.generation import BLOCKS, ROWS, paged_on
from weft.bench.decode.rows import RowCache, prefill_row, step_rows
from weft.bench.jobs import BOTH, BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.nn.decode import Decoder, DecoderConfig, PagedCache, generate, step
from weft.plan.decode import ServingTurn, requests, serve


class QueueSizes(NamedTuple):
    """The model; requests, mean lengths of prompt and output; slots, and those of a block."""

    config: DecoderConfig = DecoderConfig(layers=2, width=64, heads=4, kv_heads=2, seq=256)
    asked: int = 40
    prompt: float = 20
    output: float = 40
    slots: int = 1024
    block: int = 16


FULL = QueueSizes()


@torch.inference_mode()
def memory(run: BenchRun, sizes: QueueSizes = FULL) -> Found:
    """What the slots of both caches held while somebody waited, and what the simulation says."""
    torch.manual_seed(0)
    config, longest = sizes.config, sizes.config.seq
    model = Decoder(config).to(run.device)
    asked = requests(sizes.asked, 1, sizes.prompt, sizes.output, longest)
    dice = torch.Generator().manual_seed(1)
    prompts = [torch.randint(config.vocab, (r.prompt,), generator=dice).tolist() for r in asked]
    counts = [request.output for request in asked]
    results, made = [], {}
    for who, kind in run.each(
        ((ROWS, "reserved"), (BLOCKS, "paged")), "a queue of requests: {0[0]}"
    ):
        served = serve(asked, sizes.slots, kind, sizes.block, longest)
        start = time.perf_counter()
        made[who], seen = _served(who, model, sizes, prompts, counts)
        rate = sum(counts) / (time.perf_counter() - start)
        crowded = [moment for moment in seen if moment.waiting] or seen
        used = _mean(m.used for m in crowded) / sizes.slots
        for name, measured, simulated in (
            ("sequences at a time", _mean(m.running for m in crowded), served.running),
            ("slots with a token", used, served.shares["used"]),
            ("steps", len(seen), served.steps),
            ("evictions", sum(m.evicted for m in seen), served.evictions),
        ):
            results.append(Measurement.of(name, who, "1", [float(measured)]))
            results.append(Measurement.of(name, f"{who}, simulated", "1", [float(simulated)]))
        results.append(Measurement.of("tokens made", who, "1/s", [rate]))
    if made[ROWS] != made[BLOCKS]:
        raise AssertionError("rows and blocks do not make the same tokens")
    return f"{sizes.asked} requests on {sizes.slots} slots, a longest of {longest}", results


MEMORY = BenchJob("decode-memory", memory, BOTH, seconds=20)


class QueueTurn(NamedTuple):
    """One turn of a real cache: who runs, slots with a token, who waits, who had to go."""

    running: int
    used: int
    waiting: int
    evicted: int


def _served(
    who: str, model: Decoder, sizes: QueueSizes, prompts: list[list[int]], counts: list[int]
) -> tuple[list[list[int]], list[QueueTurn]]:
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
        seen.append(QueueTurn(running, used, len(waiting), len(turn.evicted)))

    if who == ROWS:
        cache = RowCache(model, sizes.slots // sizes.config.seq, sizes.config.seq)
        how = {"prefill": prefill_row, "step": step_rows}
    else:
        cache = PagedCache(model, sizes.slots // sizes.block, sizes.block)
        how = {"step": partial(step, paged=paged_on(model.head.tokens.weight.device.type))}
    return generate(model, cache, prompts, counts, watch=watch, **how), seen


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)
