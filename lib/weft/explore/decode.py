"""The sliders of the decoding chapter: tokens per second, guesses, and blocks that are shared."""

from weft.draw.decode import memory_svg, speculation_svg, throughput_svg
from weft.explore.box import chosen, explored
from weft.plan.arguments import sizes
from weft.plan.decode import SERVED, Blocks, Server, expected_tokens, parallel
from weft.plan.hardware import CHIPS
from weft.plan.units import binary, percent, quantity

KINDS = {"mha": "70b mha", "gqa": "70b gqa", "mqa": "70b mqa", "mla": "70b mla"}
NODE = 4  # GPUs


@explored
def throughput(
    kind: str = "gqa", context: int = 8192, batch: int = 16, cache: int = 2, chip: str = "h100"
) -> tuple[str, str]:
    """Llama 3 70B's width and layers with heads of one kind, on four GPUs, at the roof.

    Elements of the cache have `cache` bytes; 90 % of the memory may be filled.
    """
    context, batch, cache = sizes(context=context, batch=batch, cache=cache)
    shape = SERVED[chosen("kind", kind, KINDS)]
    server = Server(shape, chosen("chip", chip, CHIPS), NODE, cache)
    room, seconds = server.room(context), server.seconds(batch, context)
    caches = batch * server.held(context)
    bound = "compute" if _bound(server, context) else "memory"
    summary = (
        f"{binary(server.held(context) / context)} for a token; {room} sequences fit. A step of "
        f"{batch} reads {quantity(caches, 'B')} of caches and {quantity(server.weights, 'B')} of "
        f"weights ({percent(caches / (caches + server.weights))} caches) and takes "
        f"{seconds * 1e3:.1f} ms or more: {batch / seconds:,.0f} tokens per second"
        + (", if they fitted" if batch > room else "")
        + f". Attention is bound by {bound}."
    )
    return throughput_svg(server, context), summary


def _bound(server: Server, context: int) -> bool:
    work = server.attention(1, context)
    return work.flops / server.chip.rate("bf16") > work.bytes / server.chip.bandwidth


@explored
def guesses(acceptance: int = 80, guesses: int = 4, draft: int = 5) -> tuple[str, str]:
    """Llama 3 70B on four H100s that checks guesses, each right in so many percent of cases."""
    server = Server(SERVED["llama3-70b"], CHIPS["h100"], NODE)
    right = acceptance / 100
    picture = speculation_svg(server, (1024, 32768), right, guesses, draft / 100)
    summary = (
        f"{expected_tokens(right, guesses):.2f} tokens in a step, which checks {guesses} guesses "
        f"and, while reading bounds it, takes {1 + guesses * draft / 100:.2f} times as long as "
        f"one without."
    )
    return picture, summary


@explored
def fork(prompt: int = 6, written: int = 2, samples: int = 3) -> tuple[str, str]:
    """Several samples of one prompt in blocks of 4, each with so many tokens of its own."""
    prompt, samples = sizes(prompt=prompt, samples=samples)
    together, apart = parallel(prompt, written, samples, block=4)
    pool, names = Blocks(count=max(16, apart), block=4), [f"s{i}" for i in range(1, samples + 1)]
    pool.add("s1", prompt)
    for name in names[1:]:
        pool.fork("s1", name)
    copies = 0
    for _ in range(written):
        for name in names:
            copies += sum(event.kind == "copy" for event in pool.extend(name))
    summary = (
        f"{samples} × {prompt + written} tokens in {together} blocks, where each by itself would "
        f"take {apart}. {copies} {'block was' if copies == 1 else 'blocks were'} copied before "
        f"they were written."
    )
    return memory_svg(pool), summary
