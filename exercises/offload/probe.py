"""What the tests of this topic share, and what runs for them beside the answers."""

import importlib.util
from itertools import accumulate, pairwise
from math import sqrt

from weft.grade import WrongAnswer, expect

NAMES = "weight", "mean", "square", "gradient"
MOVES = "read", "compute", "write"
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


def as_order(case: str, answer, pieces: int) -> list[tuple[str, int]]:
    """The answer as moves that each piece goes through once, in turn; AssertionError if not."""
    if not isinstance(answer, list | tuple):
        raise WrongAnswer(f"{case}: expected a list of moves, got {answer!r}", "")
    order = []
    for at, move in enumerate(answer):
        pair = isinstance(move, list | tuple) and len(move) == 2
        if not pair or move[0] not in MOVES or move[1] not in range(pieces):
            raise WrongAnswer(
                f"{case}: move {at}: expected a kind and a piece from 0 to {pieces - 1}, "
                f"got {move!r}",
                "",
            )
        order.append((move[0], move[1]))
    for piece in range(pieces):
        got = [kind for kind, one in order if one == piece]
        if got != list(MOVES):
            raise AssertionError(f"{case}: piece {piece}: expected read, compute, write, got {got}")
    return order


def played(order: list[tuple[str, int]], times: tuple[int, int, int]) -> tuple[int, int]:
    """How long an order takes, and the most pieces in memory at once."""
    cost = dict(zip(MOVES, times, strict=True))
    free = {"disk": 0, "processor": 0}
    done, change = {}, []
    for kind, piece in order:
        lane = "processor" if kind == "compute" else "disk"
        before = done.get((MOVES[max(0, MOVES.index(kind) - 1)], piece), 0)
        start = max(free[lane], before)
        free[lane] = done[kind, piece] = start + cost[kind]
        if kind != "compute":
            change.append((start, 1) if kind == "read" else (free[lane], -1))
    return max(free.values()), max(accumulate(step for _, step in sorted(change)))
