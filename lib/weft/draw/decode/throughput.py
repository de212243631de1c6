"""Tokens per second over the batch: the roof that weights make, and the one that caches make."""

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.decode import Server, speculation
from weft.plan.units import amount

LARGEST = 1024


def throughput_svg(server: Server, context: int) -> str:
    """All sequences' tokens per second over the batch, without a `wait`, on logarithmic axes.

    Bold as far as caches fit. A ring marks the largest batch.
    """
    room = min(server.room(context), LARGEST)

    def weights(batch: float) -> float:
        return batch * server.chip.bandwidth * server.n * server.reached / server.matmuls(1).bytes

    caches = server.chip.bandwidth * server.n * server.reached / server.held(context)
    batches = sorted({round(2 ** (i / 4)) for i in range(41)})
    rates = {batch: server.rate(batch, context) for batch in batches}
    high = max(*rates.values(), caches) * 1.4
    low = min(*rates.values(), caches) / 1.4
    x = Axis("sequences in the batch", 1, LARGEST, lambda b: f"{b:,.0f}", True,
             [4**i for i in range(6)])  # fmt: skip
    y = Axis("tokens per second, all together", low, high, lambda r: f"{r:,.0f}", True)
    keys = [
        Key("at most", line(0, 3)),
        Key("more than fit", line(0, 1.2)),
        Key("reading weights alone", line(1)),
        Key("reading caches alone", line(2)),
    ]
    told = f"{room} sequences of {context:,} tokens fit." if room else "No sequence fits."
    chart = Chart(
        f"Tokens per second over the batch, context {context:,}",
        f"A curve that rises with the line of the weights and bends towards the level line of the "
        f"caches at {amount(caches)} tokens per second. {told}",
        x, y, keys,
    )  # fmt: skip
    chart.curve(((b, weights(b)) for b in chart.spots(200)), line(1))
    chart.curve(((b, caches) for b in (1, LARGEST)), line(2))
    chart.curve(rates.items(), line(0, 1.2))
    if room:
        inside = {b: r for b, r in rates.items() if b <= room} | {room: server.rate(room, context)}
        chart.curve(sorted(inside.items()), line(0, 3))
        chart.ring(room, server.rate(room, context))
        chart.point(room, server.rate(room, context), f"{room} sequences fit")
    return str(chart.figure)


def speculation_svg(
    server: Server, contexts: tuple[int, ...], acceptance: float, guesses: int, draft: float
) -> str:
    """How many times as many tokens per second guessing makes, over the batch, for each context.

    Bold as far as the caches fit, up to a ring.
    """
    batches = sorted({round(2 ** (i / 4)) for i in range(41)})
    gains = {
        context: [(b, speculation(server, b, context, acceptance, guesses, draft)) for b in batches]
        for context in contexts
    }
    most = max(gain for found in gains.values() for _, gain in found)
    x = Axis("sequences in the batch", 1, LARGEST, lambda b: f"{b:,.0f}", True,
             [4**i for i in range(6)])  # fmt: skip
    y = Axis("times as many tokens per second", 0, max(1.2, most * 1.1))
    keys = [Key(f"context {context:,}", line(i, 3)) for i, context in enumerate(contexts)]
    keys.append(Key("more than fit", line(0, 1)))
    told = "; ".join(
        f"context {context:,}: {found[0][1]:.1f} for one sequence, {found[-1][1]:.1f} for {LARGEST}"
        for context, found in gains.items()
    )
    chart = Chart(
        f"What {guesses} guesses gain over the batch",
        f"A falling curve for each context. {told}.",
        x, y, keys,
    )  # fmt: skip
    chart.curve([(1, 1.0), (LARGEST, 1.0)], line(0, 0.8))
    for i, (context, found) in enumerate(gains.items()):
        chart.curve(found, line(i, 1))
        if room := min(server.room(context), LARGEST):
            gain = speculation(server, room, context, acceptance, guesses, draft)
            chart.curve([*(at for at in found if at[0] < room), (room, gain)], line(i, 3))
            chart.ring(room, gain)
            chart.point(room, gain, f"context {context:,}: {room} sequences fit")
    return str(chart.figure)
