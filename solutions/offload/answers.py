"""Offload: six functions to write. README.md says what each has to reach.

The first three are plain Python. The fourth and fifth are torch: what they compute, read and keep
is counted. The last one drives a device by streams and events, with a clock and under watch.

The library's own plans and its runtime are closed while you are graded. Grade with
`weft grade offload`.
"""

from itertools import product


def pinned(sizes: list[int], align: int, most: int) -> tuple[int, list[int]]:
    """Tensors in few pinned buffers, so that rounding costs the fewest bytes.

    `sizes` are the bytes of tensors, at least one and each above 0, in the order in which layers
    use them. Tensors that follow each other may lie in one flat buffer: the first at its beginning,
    each other at the first multiple of `align` that is not below the end of the one before it. A
    tensor is not cut, and none changes its place in the order. A buffer is pinned by one call, and
    the allocator takes for it the smallest power of two, 1 among them, that is not below its end.
    There may be at most `most` buffers, at least 1. None is empty. There are at most ten tensors.

    Return the bytes that are taken in all, and how many tensors each buffer has, from the first
    on. The bytes are the fewest that there can be, and with them the buffers; of choices that are
    equal in both, any.

    pinned([270, 500, 250], 1, 3) is (1024, [3]), and pinned([270, 500, 250], 8, 3), where one
    buffer would end at 1,026, is (1280, [2, 1]).
    """
    # BEGIN SOLUTION
    best = [(0, 0, [])] + [(float("inf"), 0, [])] * len(sizes)  # of the first so many tensors
    for _ in range(min(most, len(sizes))):
        before, best = best, [*best]
        for start in range(len(sizes)):
            end = 0
            for stop in range(start, len(sizes)):
                end = -(-end // align) * align + sizes[stop]
                taken, buffers, counts = before[start]
                taken += 1 << (end - 1).bit_length()
                one = taken, buffers + 1, [*counts, stop + 1 - start]
                best[stop + 1] = min(best[stop + 1], one)
    return best[-1][0], best[-1][2]
    # END SOLUTION


def leave(layers: list[tuple[int, int, int, int]], room: int) -> tuple[int, list[int]] | None:
    """Which layers' activations go to the host and come back, so that a step is shortest.

    For each layer (forward, backward, copy, size): the seconds of its forward, of its backward, and
    of the copy of its activations in one direction, and their bytes on the GPU, of which it has
    room for `room`. All are whole numbers above 0. There is at least one layer.

    The GPU runs all forwards, from the first layer on, then all backwards, from the last layer on,
    one thing at a time. Copies down are one at a time, in the order of forwards, copies up one at a
    time, in the order of backwards, and both go on beside each other and beside the GPU. All begins
    as soon as it may:
        forward     when the one before is over, and there is room for the layer's activations: they
                    take it from here on
        copy down   when the layer's forward is over, and the copy down before
        copy up     when all forwards are over, the layer's copy down and the copy up before, and
                    there is room
        backward    when the one before is over (the first: the last forward), and the layer's copy
                    up if it has left
    What takes room gives it back at once at the end: a layer that leaves at the end of its copy
    down, and, as it takes room again when its copy up begins, at the end of its backward; one that
    stays at the end of its backward.

    Return the seconds until the backward of layer 0 is over, and the numbers of the layers that
    leave, in rising order. The seconds are the fewest that there can be; of choices that are equal
    in them, the fewest bytes leave, whatever their number of layers; of those, any. A choice under
    which something waits for room that never comes is out, and if all are, return None. There are
    at most ten layers.

    leave([(2, 4, 3, 5)] * 4, 10) is (26, [0, 1]), and with room for 20 (24, []).
    """
    # BEGIN SOLUTION
    n = len(layers)

    def step(away):
        """The seconds of a step; infinite if it waits for room that never comes."""
        held, frees, down = 0, [], {}  # bytes, ends with the bytes that they free

        def wait(size, now):
            nonlocal held
            frees.sort()
            while held + size > room and frees:
                end, gone = frees.pop(0)
                now, held = max(now, end), held - gone
            held += size
            return now if held <= room else float("inf")

        gpu = link = 0
        for i, (forward, _, copy, size) in enumerate(layers):
            gpu = wait(size, gpu) + forward
            if i in away:
                link = down[i] = max(link, gpu) + copy
                frees.append((link, size))
        link = gpu
        for i, (_, backward, copy, size) in reversed([*enumerate(layers)]):
            if i in away:
                link = wait(size, max(link, down[i])) + copy
                gpu = max(gpu, link)
            gpu += backward
            frees.append((gpu, size))
        return gpu

    choices = [[i for i in range(n) if choice >> i & 1] for choice in range(1 << n)]
    seconds, _, away = min((step(x), sum(layers[i][3] for i in x), x) for x in choices)
    return None if seconds == float("inf") else (seconds, away)
    # END SOLUTION


def design(node: dict, model: dict, batch: int) -> tuple[str, int, str, bool, int, float, float]:
    """Where weights, gradients, moments and activations live on a node, so that a step is shortest.

    node        gpus; of each GPU its memory in bytes, the rate in FLOP/s that it reaches, the
                bytes/s of its link to the host, in each direction, and inside, those at which it
                sends to the other GPUs. Of the host, for all GPUs: ram and disk in bytes; touch,
                the bytes/s that CPUs reach of the memory; drive, the bytes/s of the disk, which
                reads and writes by turns
    model       layers, all alike, which are all that is counted; params, of one layer; width D;
                kept, the bytes for each token that a layer keeps if it keeps all; tokens S in a
                sequence
    batch       sequences in a step of all GPUs together, a multiple of gpus

    With d GPUs, P parameters in all and p in a layer, the choices are:

    weights     16 bits. "whole": 2 P bytes on each GPU. "shard": 2 P / d on each GPU, and room for
                two whole layers, 4 p. "host": 2 P in the host's memory, and on each GPU two whole
                layers
    eighths     0 to 8: so many eighths of the optimizer stay on the GPUs, of which each has 1 / d:
                12 bytes of a parameter, and 4 in which gradients are summed. q = 1 - eighths / 8 is
                off the GPUs
    states      "host" or "disk": where 12 q P bytes of optimizer are. With eighths 8, "host". The
                host's memory has 4 q P of summed gradients in any case
    again       True: a layer keeps 2 D bytes for each token, backward computes its forward again,
                and there is room for all that one layer keeps. False: it keeps all
    micro       sequences in a microbatch on each GPU; d * micro divides batch, and a step has
                m = batch / (d * micro) microbatches

    On each GPU there are also two layers' gradients in 16 bits, 4 p. What a GPU and the host's
    memory have must be at most nine tenths of it, and what the disk has at most all.

    A microbatch has micro * S tokens on each GPU: its forward takes 2 FLOPs for each parameter and
    token, its backward 4, and with again 2 more. Beside that there move, layer by layer, so that
    each pass takes as long as the longest of these, in forward and in backward:
        link up     weights "host": 2 P / d bytes on each GPU's link
        inside      weights "shard" or "host": 2 P (d - 1) / d bytes, to gather. In backward also,
                    always, 2 P (d - 1) / d bytes, to scatter gradients; both one after the other
        link down   in backward: 2 q P / d bytes of gradients on each GPU's link
        touch       in backward: 12 q P bytes, to add them up in the host's memory
    After the last backward comes the update: 28 q P bytes of the host's memory, and of states
    "disk" 24 q P bytes of the disk; it takes the longer of both, as they go on piece by piece. Then
    new weights, unless they live in the host's memory: 2 q P / d bytes up on each link. Then, only
    if they are "whole", 2 P (d - 1) / d bytes inside. All else takes no time.

    Return (weights, eighths, states, again, micro, bytes on each GPU, seconds of a step) with the
    fewest seconds; of choices that are equal in them, any. None if nothing fits.

    Llama 2's layers of 13 billion, {"layers": 40, "params": 317204480, "width": 5120,
    "kept": 174080, "tokens": 4096}, with a batch of 16 on one H100 at 40 % of its peak, eight
    channels of DDR5-4800 at 40 % and four drives, {"gpus": 1, "memory": 80e9, "rate": 395.76e12,
    "link": 64e9, "inside": 450e9, "ram": 256e9, "touch": 122.88e9, "disk": 15.36e12,
    "drive": 32e9}, take ("host", 0, "host", False, 2, 59580170240.0, 17.00603…).
    """
    # BEGIN SOLUTION
    d, L, S, p = node["gpus"], model["layers"], model["tokens"], model["params"]
    P, best = L * p, None
    for weights, eighths, states, again, micro in product(
        ("whole", "shard", "host"), range(9), ("host", "disk"), (True, False), range(1, batch + 1)
    ):
        if batch % (d * micro) or (eighths == 8 and states == "disk"):
            continue
        m, q, tokens = batch // (d * micro), 1 - eighths / 8, micro * S
        kept = 2 * model["width"] if again else model["kept"]
        gpu = {"whole": 2 * P, "shard": 2 * P / d + 4 * p, "host": 4 * p}[weights] + 4 * p
        gpu += 2 * eighths * P / d + tokens * (L * kept + again * model["kept"])
        optimizer = 12 * q * P
        ram = 4 * q * P + 2 * P * (weights == "host") + optimizer * (states == "host")
        disk = optimizer * (states == "disk")
        if gpu > 0.9 * node["memory"] or ram > 0.9 * node["ram"] or disk > node["disk"]:
            continue
        once = 2 * P * tokens / node["rate"]
        up = 2 * P / d / node["link"] * (weights == "host")
        ring = 2 * P * (d - 1) / d / node["inside"]
        gather = ring * (weights != "whole")
        down, add = 2 * q * P / d / node["link"], 12 * q * P / node["touch"]
        forward = max(once, up, gather)
        backward = max((3 if again else 2) * once, up, gather + ring, down, add)
        update = max(28 * q * P / node["touch"], 2 * disk / node["drive"])
        back = down * (weights != "host") + ring * (weights == "whole")
        seconds = m * (forward + backward) + update + back
        if best is None or seconds < best[-1]:
            best = weights, eighths, states, again, micro, gpu, seconds
    return best
    # END SOLUTION


def stream_adam(
    store, pieces: int, step: int, lr: float, beta1: float, beta2: float, eps: float
) -> None:
    """One step of Adam on a state that is larger than the memory.

    The state lies in the store as flat tensors "weight i", "mean i", "square i" and "gradient i"
    for piece i of `pieces`; pieces may differ in size. `step` counts from 1.
        store.read(name) -> tensor: yours, to change and to keep
        store.prefetch(name): begin to read; the next read(name) gets what came
        store.write(name, tensor): has the values when it returns
    Write back weight, mean and square, so that they are those of torch.optim.Adam after the step.
    Go through the pieces in order, from 0 on.

    A step reads each tensor once, writes each of those three once, and no gradient. In memory are
    never more than two pieces, the one that you work on and the next, which is on its way, and two
    more tensors of a piece for what lies between. While you compute on a piece the next has to be
    on its way: prefetch it before you begin.
    """
    # BEGIN SOLUTION
    names = "weight", "mean", "square", "gradient"
    rise1, rise2 = 1 - beta1**step, 1 - beta2**step
    for piece in range(pieces):
        weight, mean, square, gradient = (store.read(f"{name} {piece}") for name in names)
        if piece + 1 < pieces:
            for name in names:
                store.prefetch(f"{name} {piece + 1}")
        mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        size = square.div(rise2).sqrt_().add_(eps)
        weight.addcdiv_(mean, size, value=-lr / rise1)
        for name, tensor in zip(names, (weight, mean, square), strict=False):
            store.write(f"{name} {piece}", tensor)
        del weight, mean, square, gradient, size, tensor
    # END SOLUTION


def tiled_backward(x, dy, tiles: int, read, give):
    """The backward pass of y = x Wᵀ + b, tile by tile; returns the gradient of x.

    x: [tokens, inputs], dy: [tokens, outputs], the gradient of y. W is [outputs, inputs] and comes
    in `tiles` slices of its outputs, in order, longer ones first if they are not even:
        read(tile) -> the slice's weights [its outputs, inputs]
        give(tile, dw, db): take the gradients of the slice's weights and of its biases

    Read each tile once and give its gradients once. Beside the gradient of x hold no more bytes
    than one tile's weights and gradients have; what is made on the way counts, x and dy do not.
    Leave x and dy as they are.
    """
    # BEGIN SOLUTION
    dx, start = x.new_zeros(x.shape), 0
    for tile in range(tiles):
        weight = read(tile)
        part = dy[:, start : start + len(weight)]
        start += len(weight)
        dx.addmm_(part, weight)
        give(tile, part.T @ x, part.sum(0))
        del weight
    return dx
    # END SOLUTION


def two_way(device, layers: int) -> None:
    """The backward pass of layers whose weights come from the host and whose gradients go there.

    For each layer, from layers - 1 down to 0: the CPU fills a pinned buffer with its weights, a
    copy brings them to the device, a matmul makes the gradient, a copy brings that into a pinned
    buffer, and the CPU adds it to its sums. All buffers have room for one layer's weights, or for
    its gradient. At least one layer.

        device.pinned() -> a new pinned buffer          device.memory() -> a new buffer on it
        device.stream() -> a new stream
        device.fill(pinned, layer)       the CPU writes the layer's weights into it
        device.add(pinned, layer)        the CPU adds the layer's gradient, which lies there
        device.copy(target, source, stream)             from pinned to device, or from it
        device.matmul(out, weights, layer, stream)      the layer's gradient, from its weights
        device.record(stream) -> an event: all that the stream has been given so far is over
        device.wait(stream, event)       what the stream is given from here on waits for the event
        device.synchronize(event)        the CPU waits for it

    As in CUDA, what a stream is given is done in turn, later than what the CPU has done before it
    gave it; `copy`, `matmul`, `record` and `wait` return at once. `fill`, `add` and `synchronize`
    return when they are over. Nothing else keeps an order. A matmul needs what the matmul of
    layer + 1 has handed on, so it must come later than that; what is handed on takes no buffer.

    No buffer may be written or read before what last wrote it is over, nor written before what
    reads it is over, in any timing: an order that streams, events and the CPU do not enforce counts
    as none. Gradients are added once for each layer, in any order.

    Use at most four pinned buffers and four on the device. Seconds: README.md.
    """
    # BEGIN SOLUTION
    up, compute, down = device.stream(), device.stream(), device.stream()
    coming, going = ([device.pinned() for _ in range(2)] for _ in range(2))
    weights, gradients = ([device.memory() for _ in range(2)] for _ in range(2))
    came, made, went = {}, {}, {}
    order = list(range(layers))[::-1]

    def bring(turn):
        if turn < layers:
            if turn >= 2:
                device.synchronize(came[turn - 2])
                device.wait(up, made[turn - 2])
            device.fill(coming[turn % 2], order[turn])
            device.copy(weights[turn % 2], coming[turn % 2], up)
            came[turn] = device.record(up)

    def collect(turn):
        if turn >= 0:
            device.synchronize(went[turn])
            device.add(going[turn % 2], order[turn])

    bring(0)
    bring(1)
    for turn, layer in enumerate(order):
        device.wait(compute, came[turn])
        if turn >= 2:
            device.wait(compute, went[turn - 2])
        device.matmul(gradients[turn % 2], weights[turn % 2], layer, compute)
        made[turn] = device.record(compute)
        collect(turn - 2)
        device.wait(down, made[turn])
        device.copy(going[turn % 2], gradients[turn % 2], down)
        went[turn] = device.record(down)
        bring(turn + 2)
    collect(layers - 2)
    collect(layers - 1)
    # END SOLUTION
