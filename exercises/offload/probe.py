"""What the tests of this topic share, and what runs for them beside the answers."""

import importlib.util
from itertools import accumulate, pairwise, product
from math import sqrt

from weft.grade import WrongAnswer, at_most, expect

NAMES = "weight", "mean", "square", "gradient"
SIZE = 8  # bytes of a number: everything is float64
LARGE = 10**6  # whole numbers up to it: their products' sums are exact in float64, not in float32


def warm() -> None:
    """Import what is slow to import; without torch only the tier of the page can run."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    from weft.meter import live

    torch.set_num_threads(1)
    with live():
        torch.zeros(1).add_(1)


# --- streaming Adam -------------------------------------------------------------------------------


class Store:
    """Tensors that are not in memory, and who reads and writes what, in which order."""

    OFFERS = ("prefetch()", "read()", "write()")

    def __init__(self, tensors: dict):
        from array import array

        self.disk = {name: array("d", tensor.tolist()) for name, tensor in tensors.items()}
        self.ahead = {}
        self.log = []  # (what, name) as it is asked for, and what is computed meanwhile
        self.busy = False  # with a tensor, which is then nobody's computing
        self.reads, self.writes = (dict.fromkeys(tensors, 0) for _ in range(2))

    def prefetch(self, name: str) -> None:
        """Begin to read: from here on it takes memory."""
        self._known(name, "prefetch")
        self.log.append(("prefetch", name))
        if name not in self.ahead:
            self.ahead[name] = self._load(name)

    def read(self, name: str):
        """A tensor of its own for whoever asks."""
        self._known(name, "read")
        self.log.append(("read ahead" if name in self.ahead else "read", name))
        return self.ahead.pop(name) if name in self.ahead else self._load(name)

    def write(self, name: str, tensor) -> None:
        """Take a tensor's values."""
        import torch

        from weft.meter.mode import paused

        self._known(name, "write")
        self.log.append(("write", name))
        length = len(self.disk[name])
        if not isinstance(tensor, torch.Tensor) or tensor.shape != (length,):
            shape = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else tensor
            raise ValueError(f"write({name!r}) wants a flat tensor of {length}, got {shape!r}")
        with paused():
            self.disk[name][:] = type(self.disk[name])("d", tensor.tolist())
        self.writes[name] += 1

    def _load(self, name: str):
        import torch

        from weft.meter.mode import paused

        self.reads[name] += 1
        with paused():
            disk = torch.frombuffer(self.disk[name], dtype=torch.float64)
        self.busy = True
        tensor = disk.clone()
        self.busy = False
        return tensor

    def _known(self, name: str, what: str) -> None:
        if name not in self.disk:
            raise ValueError(f"{what}({name!r}): the store has no such tensor")


def watched(store: Store):
    """A context in which the store's log tells what is computed with tensors of one dim or more."""
    import torch
    from torch.utils._pytree import tree_leaves

    from weft.meter.mode import Mode

    class Watch(Mode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            tensors = (x for x in tree_leaves(args) if isinstance(x, torch.Tensor))
            if not store.busy and not func.is_view and any(x.dim() for x in tensors):
                store.log.append(("compute", str(func)))
            return func(*args, **(kwargs or {}))

    return Watch()


def adam(answers, sizes, steps=1, seed=0, first=1) -> dict:
    """Run `stream_adam` for some steps: where it is wrong, and what it moved and kept."""
    import torch

    from weft.meter import live

    dice = torch.Generator().manual_seed(seed)
    pieces, total = len(sizes), sum(sizes)

    def numbers():
        return torch.randn(total, generator=dice, dtype=torch.float64)

    weight, mean, square = numbers(), numbers() / 9 * (first > 1), numbers() ** 2 * (first > 1)
    gradients = [numbers() for _ in range(steps)]
    lr, beta1, beta2, eps = 2.0**-5, 0.75, 0.9375, 1e-6
    right = [x.tolist() for x in (weight, mean, square)]
    cut = dict(zip(NAMES, (weight, mean, square, gradients[0]), strict=True))
    store = Store(
        {f"{name} {i}": part for name, x in cut.items() for i, part in enumerate(x.split(sizes))}
    )
    peak, moved = 0, []
    for step, gradient in enumerate(gradients, first):
        for i, part in enumerate(gradient.split(sizes)):
            store.disk[f"gradient {i}"][:] = type(store.disk["gradient 0"])("d", part.tolist())
        right = stepped(*right, gradient.tolist(), step, lr, beta1, beta2, eps)
        store.log.clear()
        store.ahead.clear()
        store.reads, store.writes = (dict.fromkeys(store.disk, 0) for _ in range(2))
        with live() as alive, watched(store):
            answers.stream_adam(store, pieces, step, lr, beta1, beta2, eps)
        peak = max(peak, alive.peak)
        moved.append((store.reads, store.writes))
    expected = dict(zip(NAMES, right, strict=False))
    return {
        "wrong": _wrong(store, expected, sizes),
        "moved": moved,
        "alive": peak,
        "late": _late(store.log, pieces),
    }


def stepped(weight, mean, square, gradient, step, lr, beta1, beta2, eps) -> list[list[float]]:
    """Weight, mean and square after a step of torch.optim.Adam, number by number."""
    after = []
    for w, m, v, g in zip(weight, mean, square, gradient, strict=True):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        size = sqrt(v / (1 - beta2**step)) + eps
        after.append((w - lr * m / (1 - beta1**step) / size, m, v))
    return [list(numbers) for numbers in zip(*after, strict=True)]


def _wrong(store: Store, expected: dict, sizes: list[int]) -> tuple | None:
    """The first number that is off: where, expected, got."""
    for i, (start, stop) in enumerate(pairwise(accumulate(sizes, initial=0))):
        for name, right in expected.items():
            got = store.disk[f"{name} {i}"]
            for at, (one, two) in enumerate(zip(right[start:stop], got, strict=True)):
                if not abs(one - two) <= 1e-11 * (1 + abs(one)):
                    return f"{name} {i}, number {at}", one, two
    return None


def _late(log: list, pieces: int) -> tuple[str, str] | None:
    """The first tensor that is not on its way while the piece before it is computed on, and when.

    That begins with the first arithmetic after the piece's last read, and ends with its writes.
    """
    for piece in range(pieces - 1):
        mine = {f"{name} {piece}" for name in NAMES}
        reads = [at for at, (what, name) in enumerate(log) if "read" in what and name in mine]
        after = range(max(reads, default=-1) + 1, len(log))
        first = next((at for at in after if log[at][0] in ("compute", "write")), len(log))
        for name in NAMES:
            wanted = f"{name} {piece + 1}"
            if ("prefetch", wanted) not in log[:first]:
                return wanted, f"when piece {piece} of {pieces} is computed on"
    return None


# --- tiles ----------------------------------------------------------------------------------------


def tiled(answers, tokens, inputs, outputs, tiles, seed=0) -> dict:
    """Run `tiled_backward`: where it is wrong, how often tiles are read and given, what is kept."""
    import torch

    from weft.meter import live

    dice = torch.Generator().manual_seed(seed)

    def whole(*shape):
        return torch.randint(-LARGE, LARGE + 1, shape, generator=dice).double()

    x, dy, w = whole(tokens, inputs), whole(tokens, outputs), whole(outputs, inputs)
    slices = w.tensor_split(tiles)
    given, reads, gives = {}, [0] * tiles, [0] * tiles

    def read(tile):
        _inside("read", tile, tiles)
        reads[tile] += 1
        return slices[tile].clone()

    def give(tile, dw, db):
        _inside("give", tile, tiles)
        gives[tile] += 1
        given[tile] = [_listed("dw", dw, (len(slices[tile]), inputs)),
                       _listed("db", db, (len(slices[tile]),))]  # fmt: skip

    before = x.clone(), dy.clone()
    with live() as alive:
        dx = answers.tiled_backward(x, dy, tiles, read, give)
    right = [("the gradient of x", (dy @ w).tolist(), _listed("dx", dx, (tokens, inputs)))]
    for tile, part in enumerate(dy.tensor_split(tiles, dim=1)):
        dw, db = given.get(tile, (None, None))
        right.append((f"dw of tile {tile}", (part.T @ x).tolist(), dw))
        right.append((f"db of tile {tile}", part.sum(0).tolist(), db))
    wrong = next((one for one in right if one[1] != one[2]), None)
    if wrong is None and not (torch.equal(x, before[0]) and torch.equal(dy, before[1])):
        wrong = "x and dy", "as they were", "changed"
    return {"wrong": wrong, "reads": reads, "gives": gives, "alive": alive.peak}


def _inside(what: str, tile, tiles: int) -> None:
    if tile not in range(tiles):
        raise ValueError(f"{what} wants a tile from 0 to {tiles - 1}, got {tile!r}")


def _listed(what: str, tensor, shape: tuple) -> list:
    import torch

    from weft.meter.mode import paused

    if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape) != shape:
        got = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else tensor
        raise ValueError(f"{what} wants a tensor of {shape}, got {got!r}")
    with paused():
        return tensor.tolist()


# --- a device -------------------------------------------------------------------------------------

KINDS = "fill", "up", "matmul", "down", "add"  # what takes time
ONCE = "one fill, copy up, matmul, copy down and add for each layer, from the last layer to layer 0"
CONTENT = "follow one layer from its fill to its add: which buffer has it after each call"


class Device:
    """Streams and events, with a clock, and with the order that is enforced between uses.

    What is given to a stream begins when the CPU has given it, what the stream has to wait for is
    over, and so are the things of its kind that were given before. That is the clock. Whether one
    use comes after another is told apart from it, for any timing: each thread, the CPU or a stream,
    counts what it does, and knows of each other thread how much of it is over for certain.
    """

    OFFERS = tuple(
        f"{name}()"
        for name in ("pinned", "memory", "stream", "fill", "add", "copy", "matmul", "record",
                     "wait", "synchronize")
    )  # fmt: skip

    def __init__(self, layers: int, times: list) -> None:
        self.layers, self.times = layers, dict(zip(KINDS, times, strict=True))
        self.holds, self.written, self.reads = {}, {}, {}
        self.knows, self.ends, self.events = {"CPU": {}}, {"CPU": 0}, {}
        self.engines = dict.fromkeys(("up", "matmul", "down"), 0)
        self.added, self.after, self.wrong, self.calls = [], layers, None, 0

    def pinned(self) -> str:
        """A new pinned buffer."""
        return self._new("pinned buffer", self.holds)

    def memory(self) -> str:
        """A new buffer on the device."""
        return self._new("device buffer", self.holds)

    def stream(self) -> str:
        """A new stream."""
        name = self._new("stream", self.ends)
        self.knows[name], self.ends[name] = {}, 0
        return name

    def fill(self, pinned, layer) -> None:
        """The CPU writes the layer's weights."""
        self._is("fill", pinned, "pinned buffer")
        self._layer("fill", layer)
        what = self._begin("CPU", f"the fill with layer {layer}'s weights")
        self._write("CPU", pinned, what, ("weights", layer))
        self.ends["CPU"] += self.times["fill"][layer]

    def add(self, pinned, layer) -> None:
        """The CPU adds the layer's gradient."""
        self._is("add", pinned, "pinned buffer")
        self._layer("add", layer)
        what = self._begin("CPU", f"the CPU's add of layer {layer}'s gradient")
        self._read("CPU", pinned, what, ("gradient", layer))
        self.added.append(layer)
        self.ends["CPU"] += self.times["add"][layer]

    def copy(self, target, source, stream) -> None:
        """A copy up or down."""
        self._is("copy", stream, "stream")
        self._is("copy", target, "pinned buffer", "device buffer")
        self._is("copy", source, "pinned buffer", "device buffer")
        if target.split()[0] == source.split()[0]:
            raise ValueError(f"copy({target!r}, {source!r}) must have one of each side")
        way = "up" if source.startswith("pinned") else "down"
        kind, layer = self.holds[source] or ("nothing", 0)
        if not self.holds[source]:
            self._note(f"a copy {way} of {source}", "something in what is copied", CONTENT)
        carried = f"layer {layer}'s {kind}" if self.holds[source] else "nothing"
        what = self._begin(stream, f"the copy {way} of {carried}")
        self._read(stream, source, what)
        self._write(stream, target, what, self.holds[source])
        self._run(stream, way, layer)

    def matmul(self, out, weights, layer, stream) -> None:
        """A layer's gradient from its weights."""
        self._is("matmul", stream, "stream")
        self._is("matmul", out, "device buffer")
        self._is("matmul", weights, "device buffer")
        self._layer("matmul", layer)
        if out == weights:
            raise ValueError(f"matmul({out!r}, {weights!r}) must have two buffers")
        what = self._begin(stream, f"the matmul of layer {layer}")
        if self.after != layer + 1:
            which = f"after that of layer {self.after}" if self.after < self.layers else "first"
            self._note(f"{what} is given {which}", f"layer {self.after - 1} there", ONCE)
        self.after = layer
        self._read(stream, weights, what, ("weights", layer))
        self._write(stream, out, what, ("gradient", layer))
        self._write(stream, "what a layer hands on", what, None)
        self._run(stream, "matmul", layer)

    def record(self, stream) -> str:
        """An event: what the stream was given is over."""
        self._is("record", stream, "stream")
        name = self._new("event", self.events)
        self.events[name] = dict(self.knows[stream]), self.ends[stream]
        return name

    def wait(self, stream, event) -> None:
        """The stream waits for the event."""
        self._is("wait", stream, "stream")
        self._is("wait", event, "event")
        self._learn(stream, event)

    def synchronize(self, event) -> None:
        """The CPU waits for the event."""
        self._is("synchronize", event, "event")
        self._learn("CPU", event)

    def _new(self, kind: str, among: dict) -> str:
        self.calls += 1
        if self.calls > 2000:
            raise ValueError("more than 2,000 buffers, streams and events are made")
        name = f"{kind} {sum(one.startswith(kind) for one in among)}"
        among[name] = None
        return name

    def _is(self, what: str, name, *kinds: str) -> None:
        known = isinstance(name, str) and any(
            name in x for x in (self.holds, self.ends, self.events)
        )
        if not known or name == "CPU" or name.rpartition(" ")[0] not in kinds:
            raise ValueError(f"{what} has {name!r} where it takes {' or '.join(map(_a, kinds))}")

    def _layer(self, what: str, layer) -> None:
        if type(layer) is not int or layer not in range(self.layers):
            last = self.layers - 1
            raise ValueError(f"{what} has layer {layer!r}, must be from 0 to {last}")

    def _learn(self, thread: str, event: str) -> None:
        known, end = self.events[event]
        for other, count in known.items():
            self.knows[thread][other] = max(self.knows[thread].get(other, 0), count)
        self.ends[thread] = max(self.ends[thread], end)

    def _begin(self, thread: str, what: str) -> str:
        """One more thing of a thread's; a stream learns what the CPU knows when it is given it."""
        for other, count in self.knows["CPU"].items():
            self.knows[thread][other] = max(self.knows[thread].get(other, 0), count)
        self.knows[thread][thread] = self.knows[thread].get(thread, 0) + 1
        return what

    def _run(self, stream: str, kind: str, layer: int) -> None:
        begin = max(self.ends["CPU"], self.ends[stream], self.engines[kind])
        self.ends[stream] = self.engines[kind] = begin + self.times[kind][layer]

    def _note(self, got: str, expected: str, hint: str | None = None) -> None:
        self.wrong = self.wrong or (expected, got, hint)

    def _read(self, thread: str, buffer: str, what: str, wanted: tuple | None = None) -> None:
        self._after(thread, buffer, what, self.written.get(buffer), "read", "written")
        held = self.holds[buffer]
        if wanted and held != wanted:
            found = f"layer {held[1]}'s {held[0]}" if held else "nothing"
            right = f"layer {wanted[1]}'s {wanted[0]}"
            self._note(f"{found} in {buffer} at {what}", right, CONTENT)
        own = self.knows[thread][thread]
        self.reads.setdefault(buffer, []).append((thread, own, what))

    def _write(self, thread: str, buffer: str, what: str, content: tuple | None) -> None:
        self._after(thread, buffer, what, self.written.get(buffer), "written", "written")
        for read in self.reads.pop(buffer, []):
            self._after(thread, buffer, what, read, "written", "read")
        self.written[buffer] = thread, self.knows[thread][thread], what
        self.holds[buffer] = content

    def _after(self, thread, buffer, what, before, now, then) -> None:
        """Note it if the use before is not over for certain."""
        if before is None or self.knows[thread].get(before[0], 0) >= before[1]:
            return
        if buffer not in self.holds or buffer == "what a layer hands on":
            name = "a matmul uses what the layer behind hands on before it is there"
        elif now == "written" and buffer.startswith("pinned"):
            name = f"{buffer} is used again while it may still be {then}"
        elif now == "written":
            name = f"{buffer} is overwritten while it may still be {then}"
        elif what.startswith("the CPU"):
            name = f"the CPU reads {buffer} before it has synchronized"
        else:
            name = f"{buffer} is used before what is copied or computed into it is there"
        self._note(f"{name}: {what} may begin before {before[2]} is over", "one after the other")


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "event" else f"a {kind}"


def two_way(answers, times) -> dict:
    """Run `two_way` on the device: what went wrong first, buffers, and seconds.

    `times` are the seconds of each kind of thing, for each layer.
    """
    layers = len(times[0])
    device = Device(layers, times)
    device.holds["what a layer hands on"] = None
    answers.spare = float("inf")  # names of buffers and events are no numbers of tensors
    answers.two_way(device, layers)
    if device.wrong is None and sorted(device.added) != list(range(layers)):
        device.wrong = f"an add of each of {list(range(layers))}", f"of {device.added}", ONCE
    count = lambda kind: sum(name.startswith(kind) for name in device.holds)  # noqa: E731
    return {
        "wrong": device.wrong,
        "pinned": count("pinned"),
        "memory": count("device"),
        "seconds": device.ends["CPU"],
    }


class Cuda:
    """The same calls on a GPU. Without one all is done in turn, at once, and nothing overlaps."""

    def __init__(self, weights, sums, x) -> None:
        """`weights` and `sums` lie in the host's memory, for each layer [D, D]; `x` is [D, D]."""
        import torch

        self.gpu, self.like, self.x = torch.cuda.is_available(), weights[0], x
        self.weights, self.sums, self.within = weights, sums, torch.cuda.stream

    def pinned(self):
        return self.like.new_empty(self.like.shape, pin_memory=self.gpu)

    def memory(self):
        return self.x.new_empty(self.x.shape)

    def stream(self):
        import torch

        return torch.cuda.Stream() if self.gpu else None

    def fill(self, pinned, layer):
        pinned.copy_(self.weights[layer])

    def add(self, pinned, layer):
        self.sums[layer].add_(pinned)

    def copy(self, target, source, stream):
        with self.within(stream):
            target.copy_(source, non_blocking=True)

    def matmul(self, out, weights, layer, stream):
        with self.within(stream):
            self.x.copy_(self.x.mm(weights))
            out.copy_(self.x)

    def record(self, stream):
        return stream.record_event() if self.gpu else None

    def wait(self, stream, event):
        if self.gpu:
            stream.wait_event(event)

    def synchronize(self, event):
        if self.gpu:
            event.synchronize()


def try_out(two_way, layers=8, width=1024) -> tuple[float, float]:
    """Run `two_way` on a GPU if there is one: seconds, and how far off the sums are at most."""
    import time

    import torch

    where = "cuda" if torch.cuda.is_available() else "cpu"
    dice = torch.Generator().manual_seed(0)
    weights = torch.randn(layers, width, width, generator=dice) / width**0.5
    x, sums = torch.eye(width, device=where), torch.zeros_like(weights)
    device, right, now = Cuda(weights, sums, x.clone()), torch.zeros_like(weights), x.clone()
    for layer in range(layers)[::-1]:
        now = now.mm(weights[layer].to(where))
        right[layer] = now.cpu()
    if device.gpu:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    two_way(device, layers)
    return time.perf_counter() - begin, (sums - right).abs().max().item()


# --- in the grader's process ----------------------------------------------------------------------


def check(case: str, report: dict) -> None:
    """Fail with the first thing that is wrong, expected beside got."""
    if report["wrong"] is not None:
        name, expected, got = report["wrong"]
        raise AssertionError(f"{case}: {name}: expected {expected!r}, got {got!r}")


def once(case: str, report: dict) -> None:
    """Fail with the first tensor that a step does not read once, or write as often as it must."""
    for reads, writes in report["moved"]:
        for name in reads:
            expect(f"{case}: times that a step reads {name!r}", reads[name], 1)
            kept = 0 if name.startswith("gradient") else 1
            expect(f"{case}: times that a step writes {name!r}", writes[name], kept)


def on_its_way(case: str, report: dict) -> None:
    """Fail with the first tensor that was asked for too late."""
    if report["late"]:
        name, when = report["late"]
        raise AssertionError(f"{case}: expected {name!r} to be on its way {when}, got no prefetch")


# --- in the grader's process: pinned buffers ------------------------------------------------------


def taken(sizes, align, counts) -> int:
    """What the allocator takes for buffers with so many tensors each."""
    total, rest = 0, list(sizes)
    for count in counts:
        end = 0
        for size in rest[:count]:
            while end % align:
                end += 1
            end += size
        buffer = 1
        while buffer < end:
            buffer *= 2
        total, rest = total + buffer, rest[count:]
    return total


def compositions(n: int, most: int):
    """All ways to write n as a sum of at most so many counts."""
    if n == 0:
        yield []
    elif most:
        for first in range(1, n + 1):
            for rest in compositions(n - first, most - 1):
                yield [first, *rest]


def check_pinned(sizes, align, most, got, fewest=True) -> None:
    """Fail unless buffers hold all tensors, take what is told, and are the best there are."""
    told = f"pinned({sizes}, {align=}, {most=})"
    whole = lambda x: isinstance(x, int) and not isinstance(x, bool)  # noqa: E731
    form = isinstance(got, list | tuple) and len(got) == 2 and isinstance(got[1], list | tuple)
    if not form or not whole(got[0]) or not all(whole(x) and x > 0 for x in got[1]):
        hint = "two: whole bytes, and a list of counts above 0"
        raise WrongAnswer(f"{told}: expected (bytes, counts), got {got!r}"[:500], hint)
    counts = list(got[1])
    expect(f"{told}: tensors in {counts}", sum(counts), len(sizes))
    at_most(f"{told}: buffers", len(counts), most)
    expect(f"{told}: bytes of buffers with {counts} tensors", got[0], taken(sizes, align, counts))
    if fewest:
        each = ((taken(sizes, align, one), len(one), one) for one in compositions(len(sizes), most))
        best = min(each)
        expect(f"{told}: (bytes, buffers)", (got[0], len(counts)), best[:2])


# --- in the grader's process: activations ---------------------------------------------------------


def step(layers, room, away) -> int | None:
    """The seconds of a step with these layers away, event by event; None if it stands still."""
    n = len(layers)
    running, now, over = {}, 0, set()  # (lane) -> (end, what); what is over
    taking = {}  # layer -> bytes that it takes now
    compute = [("forward", i) for i in range(n)] + [("backward", i) for i in range(n)[::-1]]
    downs = [("down", i) for i in range(n) if i in away]
    ups = [("up", i) for i in range(n)[::-1] if i in away]
    queues = {"gpu": compute, "down": downs, "up": ups}
    costs = {"forward": 0, "backward": 1, "down": 2, "up": 2}

    def may(kind, i):
        free = room - sum(taking.values())
        if kind == "forward":
            return layers[i][3] <= free
        if kind == "down":
            return ("forward", i) in over
        if kind == "up":
            back = ("forward", n - 1) in over and ("down", i) in over
            return back and layers[i][3] <= free
        return i not in away or ("up", i) in over

    while ("backward", 0) not in over:
        for lane, queue in queues.items():
            if lane not in running and queue and may(*queue[0]):
                kind, i = queue.pop(0)
                if kind in ("forward", "up"):
                    taking[i] = layers[i][3]
                running[lane] = now + layers[i][costs[kind]], (kind, i)
        if not running:
            return None
        now = min(end for end, _ in running.values())
        for lane in [lane for lane, (end, _) in running.items() if end == now]:
            kind, i = running.pop(lane)[1]
            over.add((kind, i))
            if kind in ("down", "backward"):
                del taking[i]
    return now


def check_leave(layers, room, got, best=True) -> None:
    """Fail unless the step takes what is told, and is the best there is."""
    told = f"leave({layers}, {room=})"
    n = len(layers)
    whole = lambda x: isinstance(x, int) and not isinstance(x, bool)  # noqa: E731
    every = []
    if best or got is None:
        for choice in product((False, True), repeat=n):
            away = [i for i in range(n) if choice[i]]
            seconds = step(layers, room, set(away))
            if seconds is not None:
                every.append((seconds, sum(layers[i][3] for i in away), away))
    if got is None:
        right = min(every) if every else None
        expect(told, None, right and (right[0], right[2]))
        return
    form = isinstance(got, list | tuple) and len(got) == 2 and isinstance(got[1], list | tuple)
    if not form or not all(map(whole, got[1])) or list(got[1]) != sorted({*got[1]} & {*range(n)}):
        text = f"{told}: expected (seconds, layers in rising order), got {got!r}"
        raise WrongAnswer(text[:500], "")
    away = list(got[1])
    seconds = step(layers, room, set(away))
    if seconds is None:
        hint = "with these away something waits for room that never comes: such a choice is out"
        raise WrongAnswer(f"{told}: expected a choice with room, or None, got {got!r}", hint)
    expect(f"{told}: seconds with {away} away", got[0], seconds)
    if best:
        right = min(every)
        size = sum(layers[i][3] for i in away)
        name = f"{told}: (seconds, bytes that leave), the best of which is with {right[2]} away"
        expect(name, (got[0], size), right[:2])


# --- in the grader's process: a design ------------------------------------------------------------


def priced(node, model, batch, weights, eighths, states, again, micro) -> tuple | None:
    """Bytes on each GPU and seconds of one choice; None if it does not fit, or cannot be."""
    d, layers, p, S = node["gpus"], model["layers"], model["params"], model["tokens"]
    if batch % (d * micro) or (eighths == 8 and states == "disk"):
        return None
    mine, off = layers * p / d, layers * p * (8 - eighths) / 8
    place = {"gpu": 4 * p + 16 * mine * eighths / 8, "ram": 4 * off, "disk": 0}
    place["disk" if states == "disk" else "ram"] += 12 * off
    if weights == "whole":
        place["gpu"] += 2 * mine * d
    else:
        place["gpu"] += 4 * p
        place["gpu" if weights == "shard" else "ram"] += 2 * mine * (1 if weights == "shard" else d)
    per_token = model["kept"] * layers
    if again:
        per_token = 2 * model["width"] * layers + model["kept"]
    place["gpu"] += micro * S * per_token
    if place["gpu"] > 0.9 * node["memory"] or place["ram"] > 0.9 * node["ram"]:
        return None
    if place["disk"] > node["disk"]:
        return None
    flops = micro * S * layers * p
    around = 2 * mine * (d - 1) / node["inside"]
    trip = {"up": 0, "inside": 0}
    if weights != "whole":
        trip["inside"] = around
    if weights == "host":
        trip["up"] = 2 * mine / node["link"]
    first = max(2 * flops / node["rate"], *trip.values())
    second = max(
        (4 + 2 * again) * flops / node["rate"],
        trip["up"],
        trip["inside"] + around,
        2 * off / d / node["link"],
        12 * off / node["touch"],
    )
    last = max(28 * off / node["touch"], 2 * place["disk"] / node["drive"])
    if weights != "host":
        last += 2 * off / d / node["link"]
    if weights == "whole":
        last += around
    return place["gpu"], batch / d / micro * (first + second) + last


def all_designs(node, model, batch) -> list[tuple]:
    """All that fit, as (seconds, bytes on each GPU, choice)."""
    hows = ("whole", "shard", "host"), range(9), ("host", "disk"), (False, True)
    micros = [x for x in range(1, batch + 1) if batch % (x * node["gpus"]) == 0]
    every = ((one, priced(node, model, batch, *one)) for one in product(*hows, micros))
    return sorted((got[1], got[0], one) for one, got in every if got)


def check_design(told, node, model, batch, got, seconds=True, best=True) -> None:
    """Fail unless the choice fits, with its bytes, and is fastest, with its seconds."""
    if got is None:
        every = all_designs(node, model, batch)
        expect(told, None, (*every[0][2], every[0][1], every[0][0]) if every else None)
        return
    if not isinstance(got, list | tuple) or len(got) != 7:
        text = "expected (weights, eighths, states, again, micro, bytes, seconds)"
        raise WrongAnswer(f"{told}: {text}, got {got!r}"[:500], "")
    weights, eighths, states, again, micro = choice = tuple(got[:5])
    whole = lambda x: isinstance(x, int) and not isinstance(x, bool)  # noqa: E731
    known = weights in ("whole", "shard", "host") and states in ("host", "disk")
    if not known or not isinstance(again, bool) or not (whole(eighths) and whole(micro)):
        hint = "two names, whole numbers for eighths and micro, and True or False for again"
        raise WrongAnswer(f"{told}: expected a choice as in the docstring, got {choice}", hint)
    one = None
    if eighths in range(9) and micro > 0:
        one = priced(node, model, batch, *choice)
    if one is None:
        every = all_designs(node, model, batch)
        text = "a choice that can be, and fits" if every else "None, as nothing fits"
        raise WrongAnswer(f"{told}: expected {text}, got {choice}")
    expect(f"{told}: {choice}: bytes on each GPU", got[5], one[0], 1e-9 * one[0])
    if seconds:
        expect(f"{told}: {choice}: seconds", got[6], one[1], 1e-9 * one[1])
    if best:
        every = all_designs(node, model, batch)
        if one[1] > every[0][0] * (1 + 1e-9):
            hint = "yours fits, and another takes less: are all choices tried?"
            expect(told, (choice, one[1]), (every[0][2], every[0][0]), hint=hint)


# --- in the grader's process: a device ------------------------------------------------------------


def floor(times, layers: int) -> float:
    """Seconds that no order beats: the CPU's own work, or one layer through all of it and then the
    busiest of copies up, matmuls and copies down for the others."""
    fill, up, matmul, down, add = times
    return max(layers * (fill + add), sum(times) + (layers - 1) * max(up, matmul, down))


def check_device(case: str, report: dict) -> None:
    """Fail with the first thing that went wrong on the device."""
    if report["wrong"]:
        expected, got, hint = report["wrong"]
        raise WrongAnswer(f"{case}: expected {expected}, got: {got}", hint)


def check_buffers(case: str, report: dict) -> None:
    """Fail if there are too many buffers."""
    at_most(f"{case}: pinned buffers", report["pinned"], 4)
    at_most(f"{case}: buffers on the device", report["memory"], 4)
