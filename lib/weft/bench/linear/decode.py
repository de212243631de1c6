"""What one more token costs with a state and with a KV cache, as the sequences grow.

Both decoders have the same sizes. What they keep is counted to the byte beside its formula. The
time is beside the least that it could be: what is kept and the weights, which all are read once,
over the rate of a plain copy. A state is written back as well. Nothing is left in the processor's
cache from the step before, as between the layers of a large model nothing would be.
"""

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.bench.jobs import BOTH, BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.kernels.decode import paged_attention as kernel
from weft.nn.decode import Decoder, DecoderConfig, PagedCache, step
from weft.nn.linear import LinearMixer, MixerDecoder, mix
from weft.plan.linear import next_token, state_bytes
from weft.ref.decode import paged_attention as reference
from weft.ref.linear import gated

CACHE, STATE = "KV cache", "state"
FORMULA, LEAST, COPY = "formula", "least", "copy"
FLOAT = 4  # bytes


class DecodingSizes(NamedTuple):
    """The model, sequences and contexts of one step, slots of a block, bytes of the copy."""

    config: DecoderConfig
    contexts: tuple[int, ...]
    batch: int = 4
    block: int = 32
    copied: int = 2**26


FULL = {
    "cpu": DecodingSizes(
        DecoderConfig(layers=2, width=256, heads=4, seq=4096), (32, 256, 1024, 4096)
    ),
    "cuda": DecodingSizes(
        DecoderConfig(layers=4, width=2048, heads=16, seq=2**15), (64, 1024, 2**13, 2**15), 16
    ),
}


@torch.inference_mode()
def decoding(run: BenchRun, sizes: DecodingSizes | None = None) -> Found:
    """Bytes kept and seconds of one more token at each context; the cache's over the state's."""
    device, clock, results = run.device, run.clock(1, 7, cold=True), []
    sizes = sizes or FULL[device]
    source = torch.ones(sizes.copied, dtype=torch.uint8, device=device)
    copy = partial(torch.empty_like(source).copy_, source)
    for context in run.each(sizes.contexts, "a context of {}"):
        ways = {CACHE: cached(sizes, context, device), STATE: stated(sizes, context, device)}
        times = clock.samples({way: how.call for way, how in ways.items()} | {COPY: copy})
        kept, name = f"kept, context {context}", f"a step, context {context}"
        steps = {way: Measurement.of(name, way, "s", times[way]) for way in ways}
        for way, how in ways.items():
            least = [how.moved * seconds / (2 * sizes.copied) for seconds in times[COPY]]
            results += [
                Measurement.of(kept, f"{way}, {FORMULA}", "B", [float(how.said)]),
                Measurement.of(kept, way, "B", [float(how.kept)]),
                Measurement.of(name, f"{way}, {LEAST}", "s", least),
                steps[way],
            ]
        results.append(steps[CACHE].over(steps[STATE]))
    config = sizes.config
    title = (
        f"One more token for {sizes.batch} sequences, with a KV cache and with a state: "
        f"{config.layers} layers of width {config.width}, {config.heads} heads, float32"
    )
    return title, results


DECODE = BenchJob("linear-decode", decoding, BOTH, seconds=60)


class DecodingWay(NamedTuple):
    """A step that can be repeated, and bytes: kept, kept by the formula, and moved at least."""

    call: Callable[[], Tensor]
    kept: int
    said: int
    moved: int


def cached(sizes: DecodingSizes, context: int, device: str) -> DecodingWay:
    """The decoder with a KV cache in blocks, which holds random keys and values of all tokens."""
    config, B = sizes.config, sizes.batch
    torch.manual_seed(0)
    model = Decoder(config).to(device)
    cache = PagedCache(model, B * ceil(context / sizes.block), sizes.block)
    for name in range(B):
        cache.add(name, context)
    for each in (cache.k, cache.v):
        each.normal_()
    paged = kernel if device == "cuda" else reference  # an interpreted kernel would be no measure
    call = partial(step, model, cache, range(B), [1] * B, paged=paged)
    said = 2 * config.layers * B * context * config.width * FLOAT
    return DecodingWay(call, cache.k.nbytes + cache.v.nbytes, said, said + _weights(model))


def stated(sizes: DecodingSizes, context: int, device: str) -> DecodingWay:
    """The decoder with a random state of so many tokens, whatever their number."""
    config, B = sizes.config, sizes.batch
    torch.manual_seed(0)
    form = partial(mix, kernel=gated.recurrent)
    model = MixerDecoder(config, partial(LinearMixer, rule="gate", form=form)).to(device)
    _, (_, empty) = model.step(torch.ones(B, dtype=torch.long, device=device))
    state = context - 1, [torch.randn_like(each) for each in empty]
    tokens = torch.ones(B, dtype=torch.long, device=device)
    kept = sum(each.nbytes for each in state[1])
    K = config.width // config.heads
    said = B * state_bytes(config.heads, K, K, config.layers)
    moved = B * config.layers * next_token(config.heads, K, K).bytes
    return DecodingWay(lambda: model.step(tokens, state)[0], kept, said, moved + _weights(model))


def _weights(model: nn.Module) -> int:
    """Bytes of all weights but the embeddings, of which a token reads a row."""
    rows = sum(weight.nbytes for weight in model.embedding.parameters())
    return sum(weight.nbytes for weight in model.parameters()) - rows
