"""What runs for this topic's tests beside the answers: caches, tile memory, and the counting."""

import importlib.util
import os
from math import ceil

from weft.grade import WrongAnswer, expect_each

NAN = float("nan")


def warm() -> None:
    """Import what is slow to import; without torch and Triton only `fits` and `allot` can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    torch.set_num_threads(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


# --- a cache --------------------------------------------------------------------------------------


def cache(length: int, block: int, G: int, K: int, V: int, loud: float, seed: int):
    """Keys and values in a row, and the same in blocks: k, v, k_cache, v_cache, table.

    Later keys are larger, up to `loud` times. Blocks lie in random order among those of others.
    What belongs to nobody here is not a number, and the table ends with what is no block.
    """
    import torch

    dice = torch.Generator().manual_seed(seed)
    k, v = torch.randn(length, G, K, generator=dice), torch.randn(length, G, V, generator=dice)
    k *= torch.linspace(0.5, loud, length)[:, None, None]
    needed = ceil(length / block)
    table = torch.randperm(needed + 3, generator=dice)[:needed]
    k_cache, v_cache = (torch.full((needed + 3, block, G, width), NAN) for width in (K, V))
    for i in range(needed):
        for rows, blocks in ((k, k_cache), (v, v_cache)):
            mine = rows[i * block : (i + 1) * block]
            blocks[table[i], : len(mine)] = mine
    return k, v, k_cache, v_cache, [*table.tolist(), 1 << 30, -1]


def exact(q, k, v):
    """o and lse of each head, in float64 with all scores at hand; q [H, K], k and v [S, G, …]."""
    import torch

    R = len(q) // k.shape[1]
    k, v = (x.double().repeat_interleave(R, 1) for x in (k, v))
    s = torch.einsum("hk,shk->hs", q.double(), k) * q.shape[1] ** -0.5
    lse = s.logsumexp(1) if s.shape[1] else s.new_full((len(q),), float("-inf"))
    p = (s - lse[:, None]).exp()
    return torch.einsum("hs,shv->hv", p, v), lse


# --- tiles ----------------------------------------------------------------------------------------


def paged(answers, length, block, H, G, K, V, capacity, loud=2.0, seed=0) -> dict:
    """Run `paged`: where it is wrong, and how often it moves each element."""
    import torch

    from weft.grade.tiles import Tiles

    k, v, k_cache, v_cache, table = cache(length, block, G, K, V, loud, seed)
    q = torch.randn(H, K, generator=torch.Generator().manual_seed(seed + 1))
    o, right = torch.full((H, V), NAN), exact(q, k, v)[0]
    sram = Tiles(capacity, {"q": q, "keys": k_cache, "values": v_cache, "o": o})
    with sram:
        answers.paged(q, k_cache, v_cache, table, length, o, sram)
    return {"wrong": _wrong("o", o, right)} | moved(sram, table, length)


def moved(counts, table: list[int], length: int) -> dict:
    """How often each element was loaded and stored; of keys and values, in their tokens' order.

    What lies elsewhere in a cache is counted as a whole.
    """
    loads = {name: x.tolist() for name, x in counts.loads.items()}
    for name in ("keys", "values"):
        every = counts.loads[name]
        mine = every[table[: ceil(length / every.shape[1])]].reshape(-1, *every.shape[2:])[:length]
        loads[name] = mine.tolist()
        loads[f"{name} of others"] = [int(every.sum() - mine.sum())]
    return {"loads": loads, "stores": {name: x.tolist() for name, x in counts.stores.items()}}


def _wrong(name: str, got, right) -> tuple | None:
    """The first element that is off by more than float32 explains: its name, expected, got."""
    near = (got.double() - right).abs() <= 1e-4 * (1 + right.abs())
    off = ~(near & right.isfinite()) & (got.double() != right)  # nothing is near infinity
    for place in off.nonzero().tolist()[:1]:
        index = ", ".join(map(str, place))
        return f"{name}[{index}]", right[tuple(place)].item(), got[tuple(place)].item()
    return None


# --- kernels --------------------------------------------------------------------------------------


def piece(answers, length, each, pieces, K, BLOCK, loud=2.0, seed=0) -> dict:
    """Run `piece` under Triton's interpreter: as `paged`."""
    import torch

    from weft.grade import kernel

    k, v, k_cache, v_cache, table = cache(length, BLOCK, 1, K, K, loud, seed)
    q = torch.randn(K, generator=torch.Generator().manual_seed(seed + 1))
    o, lse = torch.full((pieces, K), NAN), torch.full((pieces,), NAN)
    wide = torch.tensor([*table, 1 << 30], dtype=torch.int32)
    named = {"q": q, "keys": k_cache, "values": v_cache, "table": wide, "o": o, "lse": lse}
    rest = length, each, K**-0.5, K, BLOCK
    counts = kernel.run(answers, "piece", (pieces,), named, rest)
    wrong = None
    for i in range(pieces):
        mine = slice(i * each, (i + 1) * each)
        right_o, right_lse = exact(q[None], k[mine], v[mine])
        wrong = wrong or _wrong(f"piece {i}: o", named["o"][i], right_o[0])
        wrong = wrong or _wrong(f"piece {i}: lse", named["lse"][i : i + 1], right_lse)
    return {"wrong": wrong} | moved(counts, table, length)


def merge(answers, H, pieces, K, N, loud=0.0, blank=(), seed=0) -> dict:
    """Run `merge` on the pieces of H heads: as `paged`. Pieces in `blank` saw nothing."""
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    parts, lse = torch.randn(H, pieces, K, generator=dice), torch.randn(H, pieces, generator=dice)
    lse = 2 * lse + loud
    for h, i in blank:
        lse[h, i], parts[h, i] = float("-inf"), NAN if (h + i) % 2 else float("inf")
    named = {"parts": parts, "lse": lse, "o": torch.full((H, K), NAN)}
    counts = kernel.run(answers, "merge", (H,), named, (pieces, K, N))
    weights = (lse.double() - lse.double().amax(1, keepdim=True).clamp(min=-1e9)).exp()
    right = (weights[..., None] * parts.double().nan_to_num(0, 0)).sum(1)
    right /= weights.sum(1, keepdim=True).clamp(min=1e-300)
    return {"wrong": _wrong("o", named["o"], right)} | counts.moved


# --- in the grader's process ----------------------------------------------------------------------

HELD = "count the holders of each block: a fork adds one, a drop takes one, at 0 it is free"
COPY = "a block that others hold too is copied before it is written"
ROOM = "the tokens that it has and those that come take ceil(tokens / block) blocks together"


def check(case: str, report: dict) -> None:
    """Fail with the first wrong element, expected beside got."""
    if report["wrong"] is not None:
        name, expected, got = report["wrong"]
        raise AssertionError(f"{case}: {name}: expected {expected:g}, got {got:g}")


def check_moved(case: str, report: dict, loads: dict, stores: dict) -> None:
    """Fail with the first element that is moved less, or more often, than it may be.

    `loads` and `stores` have limits for each tensor, as in weft.grade.expect_each: a pair, or one
    number where no right answer can differ.
    """
    for verb, limits, kind in (("reads", loads, "loads"), ("writes", stores, "stores")):
        for name, limit in limits.items():
            least, most = limit if isinstance(limit, tuple) else (limit, limit)
            expect_each(f"{case}: times that it {verb} {name}", report[kind][name], least, most)


def check_paged(case: str, report: dict, length: int) -> None:
    """Every token once, for all heads that share it, and nothing of others."""
    once = {"keys": 1, "values": 1, "keys of others": 0, "values of others": 0, "o": 0}
    q = (int(length > 0), 1)  # without a token, nothing is asked
    check_moved(case, report, {"q": q} | once, {"o": 1, "q": 0, "keys": 0, "values": 0})


def check_piece(case: str, report: dict, length: int, each: int, pieces: int, BLOCK: int) -> None:
    """Every token and every block's number once, and the query in each program."""
    needed = ceil(length / BLOCK)
    table = [int(i < needed) for i in range(len(report["loads"]["table"]))]
    used = sum(i * each < length for i in range(pieces))  # others need no query, but may load it
    once = {"keys": 1, "values": 1, "keys of others": 0, "values of others": 0, "o": 0, "lse": 0}
    check_moved(case, report, {"table": table, "q": (used, pieces)} | once, {"o": 1, "lse": 1})


def check_merge(case: str, report: dict, blank: list) -> None:
    """Every lse once, and every part, but for those that saw nothing: they may be left out."""
    parts = [[int((h, i) not in map(tuple, blank)) for i in range(len(row))]
             for h, row in enumerate(report["loads"]["lse"])]  # fmt: skip
    check_moved(case, report, {"lse": 1, "parts": (parts, 1), "o": 0}, {"o": 1})


class Played:
    """Operations and the steps that were made for them, followed with tokens in real slots.

    `held` says after each operation how many blocks somebody holds, `refused` which operations
    had no room. An AssertionError says which step cannot be, or whose tokens have changed.
    """

    def __init__(self, case: str, operations, steps, count: int, block: int):
        self.count, self.block = count, block
        self.tables, self.lines, self.slots = {}, {}, {}
        self.written, self.held, self.refused = 0, [], []
        if not isinstance(steps, list | tuple) or len(steps) != len(operations):
            raise AssertionError(
                f"{case}: expected a list with an entry for each of {len(operations)} operations, "
                f"got {steps!r}"
            )
        for i, (operation, made) in enumerate(zip(operations, steps, strict=True)):
            self.where = f"{case}: operation {i}, {operation}"
            self._follow(i, *operation, made=made)
            self._read()
            self.held.append(count - len(self.free))

    @property
    def free(self):
        return set(range(self.count)) - {b for table in self.tables.values() for b in table}

    def _follow(self, i, kind, name, more=None, made=None):
        if kind in ("fork", "drop"):
            self._say(made == [], f"expected [], got {made!r}")
            if kind == "fork":
                self.tables[more], self.lines[more] = (
                    list(self.tables[name]),
                    list(self.lines[name]),
                )
            else:
                del self.tables[name], self.lines[name]
        elif made is None:
            self.refused.append(i)
        else:
            self._say(isinstance(made, list | tuple), f"expected a list of steps, got {made!r}")
            table = self.tables.setdefault(name, [])
            for step in made:
                self._step(table, step)
            self._write(name, table, more)

    def _step(self, table, step):
        kinds = {"take": 2, "copy": 3}
        right = isinstance(step, list | tuple) and step and len(step) == kinds.get(str(step[0]))
        self._say(
            right and all(isinstance(block, int) for block in step[1:]),
            f"expected ['take', b] or ['copy', a, b], got {step!r}",
        )
        block = step[-1]
        self._say(block in self.free, f"{step!r} needs a free block, and {block} is none", HELD)
        if step[0] == "take":
            table.append(block)
            return
        self._say(step[1] in table, f"{step!r} copies a block that is not in its table {table}")
        for slot in range(self.block):
            self.slots[block, slot] = self.slots.get((step[1], slot))
        table[table.index(step[1])] = block

    def _write(self, name, table, tokens):
        line = self.lines.setdefault(name, [])
        room = len(table) * self.block
        wanted = len(line) + tokens
        self._say(wanted <= room, f"expected room for {wanted} tokens, got {room} slots", ROOM)
        for _ in range(tokens):
            place, slot = divmod(len(line), self.block)
            self.written += 1
            line.append(self.written)
            self.slots[table[place], slot] = self.written

    def _read(self):
        for name, line in self.lines.items():
            for i, token in enumerate(line):
                place, slot = divmod(i, self.block)
                there = self.slots.get((self.tables[name][place], slot))
                self._say(there == token, f"token {i} of {name} has been written over", COPY)

    def _say(self, right, problem, hint=""):
        if not right:
            raise WrongAnswer(f"{self.where}: {problem}", hint)
