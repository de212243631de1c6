"""What one more token costs as the context grows: by running all tokens again, or from a cache.

One cache has a row reserved for each sequence, the other is in blocks.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from weft.bench.decode.rows import RowCache, prefill_row, step_rows
from weft.bench.jobs import BOTH, BenchJob, BenchRun, Found
from weft.bench.record import rates
from weft.kernels.decode import paged_attention as kernel
from weft.nn.decode import Decoder, DecoderConfig, PagedCache, prefill, step
from weft.ref.decode import paged_attention as reference

NOTHING, ROWS, BLOCKS = "no cache", "rows", "blocks"  # who keeps what


class GenerationSizes(NamedTuple):
    """The model, sequences and contexts of one step, and slots of a block."""

    config: DecoderConfig = DecoderConfig(layers=4, width=256, heads=8, kv_heads=2, seq=1024)
    batch: int = 4
    contexts: tuple[int, ...] = (64, 256, 1024)
    block: int = 16


FULL = GenerationSizes()


@torch.inference_mode()
def growing(run: BenchRun, sizes: GenerationSizes = FULL) -> Found:
    """Tokens per second of one step at each context, the three ways in turns; and the ratios."""
    device, clock, results = run.device, run.clock(1, 7), []
    for context in run.each(sizes.contexts, "a context of {}"):
        ways = _ways(sizes, context, device)
        demand_equal({name: call() for name, call in ways.items()})
        made = dict.fromkeys(ways, float(sizes.batch))
        found = rates(f"context {context}", "1/s", made, clock.samples(ways))
        results += [*found.values(), *(found[BLOCKS].over(found[who]) for who in (NOTHING, ROWS))]
    config = sizes.config
    how = "float32" + (f", {torch.get_num_threads()} threads" if device == "cpu" else "")
    title = (
        f"One more token for {sizes.batch} sequences: {config.layers} layers of width "
        f"{config.width}, {config.heads} heads on {config.kv_heads}, {how}"
    )
    return title, results


GENERATION = BenchJob("decode-generation", growing, BOTH, seconds=20)


def _ways(sizes: GenerationSizes, context: int, device: str) -> dict[str, Callable[[], Tensor]]:
    """The last token's scores, [B, N], computed in each of the three ways."""
    torch.manual_seed(0)
    config, B = sizes.config, sizes.batch
    model = Decoder(config).to(device)
    tokens = torch.randint(config.vocab, (B, context), device=device)
    last, names = tokens[:, -1].tolist(), list(range(B))
    rows = RowCache(model, B, config.seq)
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
        BLOCKS: partial(step, model, blocks, names, last, paged=paged_on(device)),
    }


def paged_on(device: str) -> Callable[..., Tensor]:
    """Whose paged attention: the kernel's on a GPU; its interpreter would be no measure."""
    return kernel if device == "cuda" else reference


def demand_equal(scores: dict[str, Tensor]) -> None:
    """Times of programs that do not do the same would mean nothing."""
    for name, got in scores.items():
        torch.testing.assert_close(
            got, scores[NOTHING], rtol=1e-3, atol=1e-3, msg=f"{name} gives other scores"
        )
