"""What the tests of this topic share, and what runs for them beside the answers."""

import importlib.util
import random

from weft.grade import WrongAnswer
from weft.plan.hopper import TILES, Hang, Kernel, Step, kernel, load_row, play

KINDS = ("S", "X", "R", "O", "done", "E", "turn", "pass")
WIDE = TILES["bf16", 128, False]


def warm() -> None:
    """Import what is slow to import; without torch only the page's functions can run."""
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)


# --- rows of warpgroups, in the grader's process --------------------------------------------------


def as_kernel(case, rows, n, tile):
    """The rows as a kernel with a warp that loads, or an AssertionError that says what is wrong."""
    groups = tile.warpgroups
    if not isinstance(rows, list | tuple) or len(rows) != groups:
        got = f"{len(rows)} rows" if isinstance(rows, list | tuple) else repr(rows)
        raise WrongAnswer(f"{case}: expected a list of {groups} rows, got {got}", "")
    block = {"load": tuple(load_row([n]))}
    for g, row in enumerate(rows, 1):
        steps = list(row) if isinstance(row, list | tuple) else [row]
        for step in steps:
            _check_pair(f"{case}: warpgroup {g}", step)
        block[str(g)] = tuple(Step(*step) for step in steps)
        _check_once(f"{case}: warpgroup {g}", block[str(g)], n)
    return Kernel(block, tile, (n,))


def _check_pair(where, step):
    pair = isinstance(step, list | tuple) and len(step) == 2
    if not pair or not isinstance(step[1], int) or step[0] not in KINDS:
        kinds = ", ".join(KINDS)
        text = f"{where}: expected (kind, index), a kind of {kinds}, got {step!r}"
        raise WrongAnswer(text, "")


def _check_once(where, row, n):
    """Each tile's S, X and O once, R for all but the first, E at the end."""
    wanted = [(kind, j) for j in range(n) for kind in "SXRO" if j or kind != "R"] + [("E", 0)]
    for step in wanted:
        times = row.count(Step(*step))
        if times != 1:
            raise AssertionError(f"{where}: expected {Step(*step)} once, got it {times} times")
    for step in row:
        if step.kind in "SXROE" and tuple(step) not in wanted:
            raise AssertionError(f"{where}: expected no {step}, with tiles 0 to {n - 1}")


def played(case, block):
    """The rows played, or an AssertionError that says who waits for what."""
    try:
        return play(block)
    except Hang as error:
        stuck = "; ".join(
            f"{_who(agent)} waits before {step} for {kind}{index} of {_who(maker)}"
            for agent, step, (maker, kind, index) in error.blocked
        )
        hint = "who waits for a turn needs somebody who passes it; who waits for a matmul orders it"
        raise WrongAnswer(f"{case}: nobody can go on: {stuck}", hint) from None


def _who(agent):
    return "the loading warp" if agent == "load" else f"warpgroup {agent}"


def tiles_held(row):
    """The most tiles of S or P that a warpgroup holds: from S until O is known to be over."""
    held, most = set(), 0
    for kind, j in row:
        if kind == "S":
            held.add(j)
            most = max(most, len(held))
        elif kind == "done":
            held.discard(j)
        elif kind == "R":
            held.discard(j - 1)
    return most


def target(policy, n, tile):
    """What the library's own rows take."""
    return play(kernel(policy, tile, [n])).makespan


# --- a ring of buffers, in the grader's process ---------------------------------------------------


class BufferRing:
    """Slots and barriers, and rows that a die lets go on; AssertionError where data are lost."""

    def __init__(self, case, rows, n, stages, consumers):
        self.case, self.n, self.stages, self.consumers = case, n, stages, consumers
        if not isinstance(rows, list | tuple) or len(rows) != consumers + 1:
            got = f"{len(rows)} rows" if isinstance(rows, list | tuple) else repr(rows)
            raise WrongAnswer(f"{case}: expected {consumers + 1} rows, got {got}", "")
        self.rows = [self._checked(i, row) for i, row in enumerate(rows)]
        self.at = [0] * len(rows)
        self.phase = {kind: [0] * stages for kind in ("empty", "full")}
        self.arrived = {kind: [0] * stages for kind in ("empty", "full")}
        self.tile = [None] * stages  # what a slot holds, or what is on its way into it
        self.there = [False] * stages
        self.freed = [set() for _ in range(stages)]  # who is done with what a slot holds
        self.read = [[] for _ in rows]

    def _checked(self, i, row):
        kinds = ("empty", "load") if i == 0 else ("full", "read", "free")
        for step in row if isinstance(row, list | tuple) else [row]:
            good = isinstance(step, list | tuple) and len(step) == 3 and step[0] in kinds
            if not good or not all(isinstance(x, int) for x in step[1:]):
                kinds = ", ".join(kinds)
                raise WrongAnswer(
                    f"{self.case}: {self._name(i)}: expected (kind, slot, number), a kind of "
                    f"{kinds}, got {step!r}",
                    "",
                )
            if not 0 <= step[1] < self.stages:
                raise WrongAnswer(
                    f"{self.case}: {self._name(i)}: expected a slot from 0 to {self.stages - 1}, "
                    f"got {step!r}",
                    "tile j goes into slot j mod stages",
                )
        return [tuple(step) for step in row]

    def _name(self, i):
        return "producer" if i == 0 else f"consumer {i}"

    def run(self, seed, moving=None):
        """Let those in `moving`, or all, go on in an order drawn by `seed` until none can."""
        dice = random.Random(seed)
        moving = range(len(self.rows)) if moving is None else moving
        while True:
            coming = [slot for slot in range(self.stages) if self._coming(slot)]
            able = [i for i in moving if self.at[i] < len(self.rows[i]) and self._able(i)]
            if not coming and not able:
                return self
            what = dice.choice([("arrive", slot) for slot in coming] + [("go", i) for i in able])
            if what[0] == "arrive":
                self.there[what[1]] = True
                self._arrive("full", what[1], 1)
            else:
                self._go(what[1])

    def _coming(self, slot):
        return self.tile[slot] is not None and not self.there[slot]

    def _able(self, i):
        kind, slot, number = self.rows[i][self.at[i]]
        return kind not in ("empty", "full") or self.phase[kind][slot] % 2 != number % 2

    def _arrive(self, kind, slot, wanted):
        self.arrived[kind][slot] += 1
        if self.arrived[kind][slot] == wanted:
            self.arrived[kind][slot] = 0
            self.phase[kind][slot] += 1

    def _go(self, i):
        kind, slot, number = self.rows[i][self.at[i]]
        self.at[i] += 1
        where = f"{self.case}: {self._name(i)}"
        if kind == "load":
            late = [c for c in range(1, self.consumers + 1) if c not in self.freed[slot]]
            if self.tile[slot] is not None and late:
                raise WrongAnswer(
                    f"{where} overwrites tile {self.tile[slot]} in slot {slot} with tile {number}, "
                    f"and consumer {late[0]} has not freed it",
                    "before it loads into a slot again, the producer waits for its last `empty`",
                )
            self.tile[slot], self.there[slot], self.freed[slot] = number, False, set()
        elif kind == "read":
            if self.tile[slot] != number or not self.there[slot]:
                held = "nothing" if self.tile[slot] is None else f"tile {self.tile[slot]}"
                held += "" if self.there[slot] else ", not there yet" * (held != "nothing")
                raise WrongAnswer(
                    f"{where} reads tile {number} in slot {slot}, which holds {held}",
                    "before it reads, a consumer waits for the phase of `full` of that turn",
                )
            if i in self.freed[slot]:
                raise AssertionError(f"{where} reads tile {number} after it has freed it")
            self.read[i].append(number)
        elif kind == "free":
            self.freed[slot].add(i)
            self._arrive("empty", slot, self.consumers)

    def finished(self):
        """Fail unless everybody has come to the end and every consumer has read every tile."""
        for i, row in enumerate(self.rows):
            if self.at[i] < len(row):
                step = row[self.at[i]]
                raise WrongAnswer(
                    f"{self.case}: {self._name(i)} waits for ever at {step!r}",
                    "a wait for phase p goes on once p has ended: which phase is the slot's turn?",
                )
        for i in range(1, len(self.rows)):
            if self.read[i] != list(range(self.n)):
                raise AssertionError(
                    f"{self.case}: expected consumer {i} to read tiles 0 to {self.n - 1} in order, "
                    f"got {self.read[i]!r}"
                )


# --- a row of numbers, in the measuring process ---------------------------------------------------

ARITHMETIC = "add radd sub rsub mul rmul truediv rtruediv pow rpow"
SIGNS = "neg abs"
COMPARED = "lt le gt ge eq ne"


class Number:
    """A number that counts what is done with it; the answer does it, and it is done here."""

    OFFERS = tuple(
        f"__{name}__()" for name in f"{ARITHMETIC} {SIGNS} {COMPARED} pos float int".split()
    )
    __hash__ = None
    done = 0

    def __init__(self, value):
        self.value = float(value)

    def __pos__(self):
        return self

    def __float__(self):
        raise TypeError("these numbers count what is done with them: add them as they are")

    __int__ = __float__


def _operation(name):
    def operation(self, *others):
        Number.done += 1
        return Number(getattr(float, name)(self.value, *map(_plain, others)))

    return operation


def _comparison(name):
    return lambda self, other: getattr(float, name)(self.value, _plain(other))


def _plain(x):
    return x.value if isinstance(x, Number) else float(x)


for _name in f"{ARITHMETIC} {SIGNS}".split():
    setattr(Number, f"__{_name}__", _operation(f"__{_name}__"))
for _name in COMPARED.split():
    setattr(Number, f"__{_name}__", _comparison(f"__{_name}__"))


def row(K, seed):
    """K random numbers."""
    dice = random.Random(seed)
    return [dice.gauss(0, 1) for _ in range(K)]


def mixed(answers, K, seed):
    """The operations that hadamard takes on K random numbers."""
    Number.done = 0
    answers.hadamard([Number(number) for number in row(K, seed)])
    return Number.done


def product(x):
    """A row times the Hadamard matrix over its root, by the definition."""
    if len(x) == 1:
        return list(x)
    half = len(x) // 2
    left, right = product(x[:half]), product(x[half:])
    pairs = list(zip(left, right, strict=True))
    return [(a + b) * 0.5**0.5 for a, b in pairs] + [(a - b) * 0.5**0.5 for a, b in pairs]


# --- tensors, in the answer's process -------------------------------------------------------------


def scored(answers, cases, seed):
    """For each (kind, T, S, K, block) what fp8_scores makes of it: shape, errors, casts.

    "even" numbers are small integers times a power of two for each block, which eight bits hold,
    and the second block is 0; "outliers" are normal, but thirty times as large in two columns, the
    same of q and of k, and are given with signs. `largest` is the largest error of a score over
    |q| |k|, `rmse` the root of their mean square, and `rounded` the share of it that is left beside
    scores that were rounded as they should be.
    """
    try:
        answers.fp8_scores(None, None, None, 1)
    except NotImplementedError:
        raise  # a stub, before torch is imported
    except Exception:
        pass  # no tensors mean nothing to a function that works
    answers.spare = float("inf")  # casts are counted here, and tensors may be read
    return [_scored(answers.fp8_scores, *case, seed) for case in cases]


def _scored(fp8_scores, kind, T, S, K, block, seed):
    import torch

    dice = torch.Generator().manual_seed(seed)
    q, k = (_numbers(kind, length, K, block, dice) for length in (T, S))
    signs = (torch.randint(0, 2, (K,), generator=dice) * 2 - 1).float()
    with _count() as count:
        got = fp8_scores(q.clone(), k.clone(), signs if kind == "outliers" else None, block)
    if not isinstance(got, torch.Tensor):
        raise TypeError(f"fp8_scores gives a {type(got).__name__}, not a tensor")
    form = f"{str(got.dtype).removeprefix('torch.')} {list(got.shape)}"
    measured = {"form": form, "cast": count.cast}
    if got.shape == (T, S):
        right = q.double() @ k.double().T
        wrong = (got.double() - right).nan_to_num(float("inf"))
        sizes = q.double().norm(dim=1)[:, None] * k.double().norm(dim=1)
        measured["largest"] = (wrong.abs() / sizes.clamp_min(1e-300)).max().item()
        measured["rmse"] = wrong.square().mean().sqrt().item()
        if kind == "outliers":
            mixed = ([product((row * signs).tolist()) for row in x] for x in (q, k))
            eight_q, eight_k = (_in_eight_bits(torch.tensor(rows), block) for rows in mixed)
            should = eight_q @ eight_k.T
            left = (got.double() - should).nan_to_num(float("inf"))
            measured["rounded"] = (left.norm() / (should - right).norm()).item()
    return measured


def _in_eight_bits(x, block):
    """The numbers that are left of x where each block is cast with its scale, in fp64."""
    import torch

    parts = []
    for part in x.split(block):
        by = part.abs().max() / 448
        parts.append((part / by).to(torch.float8_e4m3fn).double() * by)
    return torch.cat(parts)


def _numbers(kind, length, K, block, dice):
    import torch

    if kind == "outliers":
        x = torch.randn((length, K), generator=dice)
        x[:, [1, K // 2]] *= 30
        return x
    held = torch.tensor([*range(16), *range(16, 29, 2)]).float()  # by three bits of fraction
    x = held[torch.randint(len(held), (length, K), generator=dice)]
    x *= torch.randint(0, 2, (length, K), generator=dice) * 2 - 1
    x[:, 0] = held[-1]  # which is 448 over a power of two
    for i in range(0, length, block):
        x[i : i + block] *= 2.0 ** (-16 * (i // block))
    x[block : 2 * block] = 0.0
    return x


def _count():
    """A mode that counts what is cast to eight bits."""
    import torch

    from weft.meter.mode import Mode

    class Count(Mode):
        cast = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            small = isinstance(out, torch.Tensor) and out.dtype == torch.float8_e4m3fn
            if small and args[0].dtype != out.dtype:
                self.cast += out.numel()
            return out

    return Count()
