"""What runs for this topic's tests beside the answers: a tile memory, an interpreter, the counting,
and checks that try all there is."""

import importlib.util
import os
from bisect import bisect_right
from fractions import Fraction
from math import exp, log

from weft.grade import WrongAnswer, expect, expect_each

NAN = float("nan")


def warm() -> None:
    """Import what is slow to import, with Triton's interpreter on, GPU or not: it counts."""
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    torch.set_num_threads(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401  mends the interpreter


def written(function, count):
    """Raise NotImplementedError for a stub, before anything is made for it."""
    try:
        function(*[None] * count)
    except NotImplementedError:
        raise
    except Exception:
        pass  # None means nothing to a function that works


def number(x) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


# --- entropy --------------------------------------------------------------------------------------


def entropy(answers, rows, capacity):
    """Run the answers' entropy on rows of float32 in so much tile memory.

    What came out, and how often each element was loaded and stored.
    """
    written(answers.entropy, 3)
    import torch

    from weft.grade.tiles import Tiles

    x = torch.tensor(rows)
    out = torch.full((len(rows), 1), NAN)
    sram = Tiles(capacity, {"x": x, "out": out})
    with sram:
        answers.entropy(x, out, sram)
    return {"out": out.tolist()} | sram.moved


# --- swiglu, backward -----------------------------------------------------------------------------


def swiglu_backward(answers, h, dy, dtype, BLOCK):
    """Run the answers' kernel on h, dy and y, each between margins that nobody may touch.

    What came out, how often each element was loaded and stored, and how often by a program that
    has others.
    """
    import torch
    from triton.runtime import interpreter

    from weft.grade import kernel

    kind = getattr(torch, dtype)
    named = {"h": torch.tensor(h, dtype=kind), "dy": torch.tensor(dy, dtype=kind)}
    rows, F = named["dy"].shape
    named["y"] = torch.full((rows, F), NAN, dtype=kind)
    grid = rows, -(-F // BLOCK)
    interpreter._interpreter = log = Log(interpreter, interpreter._interpreter)
    try:
        counts = kernel.run(answers, "swiglu_backward", grid, named, (F, BLOCK))
    finally:
        interpreter._interpreter = log.real
    values = {name: x.double().tolist() for name, x in named.items()}
    return values | counts.moved | {"strays": strays(log.seen, named, F, BLOCK)}


class Log:
    """What Triton's interpreter loads and stores with, which notes the program and the places."""

    def __init__(self, interpreter, real):
        self.builder, self.real, self.seen = interpreter.interpreter_builder, real, []

    def __getattr__(self, name):
        return getattr(self.real, name)

    def load(self, pointers, mask, *rest):
        self.seen.append((self.builder.grid_idx[:2], pointers[mask.astype(bool)]))
        return self.real.load(pointers, mask, *rest)

    def store(self, pointers, value, mask):
        self.seen.append((self.builder.grid_idx[:2], pointers[mask.astype(bool)]))
        return self.real.store(pointers, value, mask)


def strays(seen, named, F, BLOCK) -> dict:
    """How often each element is loaded or stored by another program than the one that has it."""
    counts = {}
    for name, x in named.items():
        every = [0] * x.numel()
        for program, pointers in seen:
            for pointer in pointers.reshape(-1).tolist():
                place, inside = divmod(int(pointer) - x.data_ptr(), x.element_size())
                if not inside and 0 <= place < x.numel():
                    row, column = divmod(place, x.shape[1])
                    every[place] += program != (row, column % F // BLOCK)
        counts[name] = [every[i : i + x.shape[1]] for i in range(0, len(every), x.shape[1])]
    return counts


# --- in the grader's process: a walk --------------------------------------------------------------


def fetched(rows, columns, steps, a, b, cache, wave, g) -> int:
    """The bytes that groups of g fetch: all loads first, then for each what came since the last.

    A slice is there still if it and all that has been loaded since take no more than the cache.
    """
    tiles = sorted(
        ((row, column) for row in range(rows) for column in range(columns)),
        key=lambda tile: (tile[0] // g, tile[1], tile[0]),
    )
    loads = []
    for first in range(0, len(tiles), wave):
        for step in range(steps):
            for row, column in tiles[first : first + wave]:
                loads += [(0, row, step), (1, column, step)]
    last, moved = {}, 0
    recent = [], []  # of each operand, when its slices were last loaded, rising
    for now, load in enumerate(loads):
        kind = load[0]
        before, own = last.get(load), (a, b)[kind]
        if before is None:
            moved += own
        else:
            since = [len(times) - bisect_right(times, before) for times in recent]
            moved += own * (own + since[0] * a + since[1] * b > cache)
            del recent[kind][bisect_right(recent[kind], before) - 1]
        recent[kind].append(now)
        last[load] = now
    return moved


def check_walk(case: dict, groups: list[int], got) -> None:
    """Fail unless the group and its bytes are those of the smallest that fetches the fewest."""
    sizes = ", ".join(f"{name}={value}" for name, value in case.items())
    told = f"walk({sizes}, {groups=})"
    pair = isinstance(got, list | tuple) and len(got) == 2 and all(map(number, got))
    if not pair or got[0] not in groups:
        text = f"{told}: expected (g, bytes), two plain numbers, g of groups, got {got!r}"
        raise WrongAnswer(text[:500], "")
    all_bytes = {g: fetched(**case, g=g) for g in sorted(set(groups))}
    best = min(all_bytes, key=lambda g: (all_bytes[g], g))
    expect(f"{told}: bytes that groups of {got[0]} fetch", got[1], all_bytes[got[0]])
    fewest = f"groups of {best} fetch {all_bytes[best]} bytes: "
    fewest += "compare all" if all_bytes[best] < got[1] else "of equal ones take the smallest"
    expect(f"{told}: (g, bytes)", tuple(got), (best, all_bytes[best]), hint=fewest)


# --- in the grader's process: stalls --------------------------------------------------------------

WALLS = "overhead", "memory", "compute"


def spent(kernels, launch, depth, rate, bandwidth, start) -> dict:
    """The seconds of each wall, from when each launch and each kernel begins and ends."""
    launch, rate, bandwidth, start = map(Fraction, (launch, rate, bandwidth, start))
    launches, runs, walls = [], [], []
    for i, (flops, nbytes) in enumerate((Fraction(f), Fraction(b)) for f, b, _ in kernels):
        times = start, nbytes / bandwidth, flops / rate
        ready = [launches[-1][1]] if i else [Fraction(0)]
        ready += [runs[i - 1][1]] if i and kernels[i - 1][2] else []
        ready += [runs[i - depth][0]] if i - depth >= 0 else []
        launches.append((max(ready), max(ready) + launch))
        begin = max(launches[-1][1], runs[-1][1]) if i else launches[-1][1]
        runs.append((begin, begin + max(times)))
        walls.append(max(range(3), key=lambda wall, times=times: (times[wall], wall)))
    total = dict.fromkeys(WALLS, Fraction(0))
    for (begin, end), wall in zip(runs, walls, strict=True):
        total[WALLS[wall]] += end - begin
    total["overhead"] += (runs[-1][1] if runs else 0) - sum(end - begin for begin, end in runs)
    return total


def check_stalls(kernels, launch, depth, rate, bandwidth, start, got, told="") -> None:
    """Fail with the end first, then with the wall that got too much or too little."""
    rest = f"{launch=}, {depth=}, {rate=}, {bandwidth=}, {start=}"
    told = f"stalls of {told}, {rest}" if told else f"stalls({kernels}, {rest})"
    form = isinstance(got, dict) and set(got) == set(WALLS) and all(map(number, got.values()))
    if not form:
        raise WrongAnswer(f"{told}: expected a number for each of {WALLS}, got {got!r}"[:900], "")
    right = spent(kernels, launch, depth, rate, bandwidth, start)
    end = float(sum(right.values()))
    within = 1e-9 * end or 1e-12
    expect(f"{told}: seconds in all", sum(got.values()), end, within)
    for wall in WALLS:
        expect(f"{told}: seconds of {wall}", got[wall], float(right[wall]), within)


# --- in the grader's process: a tiling ------------------------------------------------------------

SIDES, SPLITS = (16, 32, 64, 128, 256), (1, 2, 4, 8, 16)
PARTS = "split, each of its programs writes a part in 4 bytes, and a second kernel reads them all"
RAGGED = "the last slice is computed in full, as are tiles at the edges"


def misfit(k, chip, tile_m, tile_n, split) -> str:
    """Why there is no such tile or split; empty where there is."""
    if tile_m not in SIDES or tile_n not in SIDES or split not in SPLITS:
        return f"no choice: the sides are of {SIDES}, the split is of {SPLITS}"
    if (slices := -(-k // 64)) < split:
        return f"no choice: the split is at most the number of slices, {slices}"
    if tile_m * tile_n * 4 > 131_072:
        return f"too large: its sums take {tile_m * tile_n * 4:,} bytes of registers, of 131,072"
    buffers = (tile_m + tile_n) * 64 * 2 * 4
    if buffers > chip["shared"]:
        return f"too large: its four buffers take {buffers:,} bytes, shared has {chip['shared']:,}"
    return ""


def tilings(m, n, k, chip, splits=SPLITS) -> dict[tuple, Fraction]:
    """The seconds of all tiles and splits that fit, exactly."""
    exact = {name: Fraction(value) for name, value in chip.items()}
    up = lambda x, y: -(-x // y)  # noqa: E731
    found = {}
    for tile_m in SIDES:
        for tile_n in SIDES:
            for split in splits:
                if misfit(k, chip, tile_m, tile_n, split):
                    continue
                numbers = up(up(k, 64), split) * 64
                tiles = up(m, tile_m) * up(n, tile_n)
                turns = up(tiles * split, chip["sms"])
                on_cores = Fraction(tile_m * numbers * tile_n * 2) / exact["rate"]
                from_l2 = Fraction((tile_m * numbers + numbers * tile_n) * 2) / exact["l2"]
                made = m * n * (2 if split == 1 else 4 * split)
                memory = ((m * k + k * n) * 2 + made) / exact["memory"]
                first = max(turns * chip["sms"] * max(on_cores, from_l2), memory, exact["start"])
                adding = max((made + m * n * 2) / exact["memory"], exact["start"])
                found[tile_m, tile_n, split] = first + (adding if split > 1 else 0)
    return found


def check_tiling(m, n, k, chip, got, best=True) -> None:
    """Fail unless the tile fits and takes so long, and, if `best`, no other takes less."""
    told = f"tiling({m=}, {n=}, {k=}, {chip=})"
    form = isinstance(got, list | tuple) and len(got) == 4 and all(map(number, got))
    if not form:
        text = f"{told}: expected (tile_m, tile_n, split, seconds), plain numbers, got {got!r}"
        raise WrongAnswer(text[:500], "")
    chosen = tuple(got[:3])
    shown = "{} x {}, split {}".format(*chosen)
    if why := misfit(k, chip, *chosen):
        raise WrongAnswer(f"{told}: got {shown}, which is {why}", "")
    every = tilings(m, n, k, chip)
    right = float(every[chosen])
    hint = PARTS if chosen[2] > 1 else RAGGED if k % 64 else None
    expect(f"{told}: {shown}: seconds", got[3], right, 1e-9 * right, hint)
    soonest = min(every, key=every.__getitem__)
    least = float(every[soonest])
    if best and right > least * (1 + 1e-9):
        other = f"{soonest[0]} x {soonest[1]}, split {soonest[2]}"
        text = f"{told}: {shown} takes {right:g} s, expected {least:g} s, as {other} takes"
        raise WrongAnswer(text, "yours is right in its seconds, and not the soonest: try them all")


# --- in the grader's process: what was measured ---------------------------------------------------


def surprise(row) -> float:
    """The entropy of a row's softmax."""
    most = max(row)
    total = sum(exp(x - most) for x in row)
    chances = (exp(x - most) / total for x in row)
    return sum(-p * log(p) for p in chances if p)


def check_entropy(case, x, got) -> None:
    for i, row in enumerate(x):
        right = surprise(row)
        expect(f"{case}: out[{i}, 0]", got["out"][i][0], right, 2e-5 + 1e-4 * right)


def silu_and_slope(gate) -> tuple[float, float]:
    """silu(gate), and its slope, where exp has room."""
    chance = 1 / (1 + exp(-gate)) if gate > 0 else exp(gate) / (1 + exp(gate))
    return gate * chance, chance + gate * chance * (1 - chance)


def check_gradients(case, h, dy, dtype, got) -> None:
    """Fail with the first wrong element of what a row of h and y has become."""
    off = 6e-4 if dtype == "float16" else 2e-5  # half a step of float16 is 2^-11, 4.9e-4
    for i, (row, slopes) in enumerate(zip(h, dy, strict=True)):
        F = len(slopes)
        for j, (gate, up, d) in enumerate(zip(row[:F], row[F:], slopes, strict=True)):
            silu, slope = silu_and_slope(gate)
            for name, at, right in (
                ("y", j, silu * up),
                ("h", j, d * up * slope),
                ("h", F + j, d * silu),
            ):
                within = 1e-5 + off * abs(right) + 2e-5 * abs(d * up)  # a slope can be near 0
                what = {"y": "", "h": ", of gate" if at < F else ", of up"}[name]
                expect(f"{case}: {name}[{i}, {at}]{what}", got[name][i][at], right, within)


def check_own(case, got) -> None:
    """Fail unless each program has touched the columns that are its own, and no others."""
    own = "program (i, j) has row i, and of it the columns from j * BLOCK on, BLOCK of them"
    for name, counts in got["strays"].items():
        what = f"{case}: times that a program touches what another one has of {name}"
        expect_each(what, counts, 0, 0, hint=own)


def check_moved(case, got, loads, stores) -> None:
    """Fail unless each element of each tensor is loaded and stored so often, 0 where none says."""
    for verb, kind, times in (("reads", "loads", loads), ("writes", "stores", stores)):
        for name, counts in got[kind].items():
            often = times.get(name, 0)
            expect_each(f"{case}: times that it {verb} {name}", counts, often, often)
