"""What runs for this topic's tests beside the answers: tensors, kernels, and the counting."""

import importlib.util
import os
from itertools import product
from math import ceil, floor, inf, log2, sqrt

from weft.grade import WrongAnswer, between, expect, expect_each

NAN = float("nan")
TOP = 448  # of e4m3


def warm() -> None:
    """Import what is slow to import; without torch and Triton only the first two can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    torch.set_num_threads(1)
    with _casts():
        torch.zeros(1).add_(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


# --- a linear layer -------------------------------------------------------------------------------


def _casts():
    """A context whose `count` says how many numbers were cast to e4m3."""
    from torch import float8_e4m3fn
    from torch.utils._python_dispatch import TorchDispatchMode

    class Casts(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            made = getattr(result, "dtype", None) == float8_e4m3fn
            eight = [getattr(x, "dtype", None) == float8_e4m3fn for x in args]
            if made and ("copy_" in str(func) or "_to_copy" in str(func)) and not all(eight[:2]):
                self.count += result.numel()
            return result

    return Casts()


def drawn(M, N, K, wild, seed):
    """x, w and dy, whose sizes differ from index to index and cancel where they are summed over."""
    import torch

    dice = torch.Generator().manual_seed(seed)

    def powers(n):
        few = torch.randint(-9, 10, (n,), generator=dice)
        return 2.0 ** few.mul(int(wild)).clamp(-9, 9)

    m, n, k = powers(M), powers(N), powers(K)
    x = torch.randn(M, K, generator=dice) * m[:, None] * k
    w = torch.randn(N, K, generator=dice) * n[:, None] / k
    dy = torch.randn(M, N, generator=dice) / m[:, None] / n
    return x, w, dy


def beyond(M, N, K, seed):
    """As `drawn`: each second number of a row of x and dy is one float32 beyond 448 of a scale.

    The others are so small that it shows which scale they got.
    """
    x, w, dy = drawn(M, N, K, False, seed)
    for one in x, dy:
        one *= 2.0**-20
        one[:, ::2] = TOP * 2.0**-12 * (1 + 2.0**-23) * one[:, ::2].sign()
    w[::2] *= 2.0**-8
    w[:, ::2] *= 2.0**-8
    return x, w, dy


def linear(answers, M, N, K, block, wild=False, zeros=False, seed=0, edge=False) -> dict:
    """Run `linear`: where it is wrong, and how many numbers it casts.

    `wild` numbers differ in size by many powers of two; with `zeros` some blocks have nothing else;
    with `edge` the largest are just beyond 448 of a scale.
    """
    import torch

    given = beyond(M, N, K, seed) if edge else drawn(M, N, K, wild, seed)
    if zeros:
        for one in given:
            one[:, :block] = 0
            one[: block + 1] = 0
    before = [one.clone() for one in given]
    with _casts() as casts:
        got = answers.linear(*given, block)
    if not isinstance(got, list | tuple) or len(got) != 3:
        raise WrongAnswer(f"linear: expected (y, dx, dw), got {got!r}"[:300], "")
    x, w, dy = (one.double() for one in before)
    tiles = _held(w, block, block)
    factors = {
        "y": (_held(x, 1, block), tiles.T),
        "dx": (_held(dy, 1, block), tiles),
        "dw": (_held(dy, block, 1).T, _held(x, block, 1)),
    }
    wrong = None
    for (name, (a, b)), found in zip(factors.items(), got, strict=True):
        wrong = wrong or _form(name, found, list((a @ b).shape), torch.float32)
        wrong = wrong or _differs(name, found, a @ b, 1e-6 * (a.abs() @ b.abs()) + 1e-30)
    for name, one, was in zip(("x", "w", "dy"), given, before, strict=True):
        wrong = wrong or (None if torch.equal(one, was) else (name, "left as it was", "changed"))
    return {"wrong": wrong, "casts": casts.count}


def _held(a, high: int, wide: int):
    """Block by block: what is left of the numbers once they have been in e4m3."""
    import torch

    left = a.clone()
    for i, j in product(range(0, a.shape[0], high), range(0, a.shape[1], wide)):
        part = a[i : i + high, j : j + wide]
        most = part.abs().max().item()
        scale = 2.0 ** floor(log2(TOP / most)) if most else 1.0
        scale = scale * 2 if most * scale * 2 <= TOP else scale
        scale = scale / 2 if most * scale > TOP else scale
        eight = (part * scale).float().to(torch.float8_e4m3fn)
        left[i : i + high, j : j + wide] = eight.double() / scale
    return left


# --- kernels --------------------------------------------------------------------------------------

MAGNITUDES = 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0


def mxfp4(answers, rows, n, stride, ROWS, BLOCK, kind="plain", seed=0, alone=False) -> dict:
    """Run `mxfp4` under Triton's interpreter: where it is wrong, what it loads and stores.

    The numbers are of a `kind`: plain, ties, ends (of bf16's range) or odd (NaN and infinite).
    Where the programs (0, j) run `alone`, all rows but their ROWS keep the 0x99 they came with.
    """
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, stride, generator=dice)
    x *= 2.0 ** torch.randint(-8, 8, (rows, 1), generator=dice)
    if kind == "ties":  # of each scale, and blocks whose largest number is just 6 of them, or more
        few = torch.tensor([0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 1.0, 3.0, 6.0, 7.0])
        x = few[torch.randint(len(few), (rows, stride), generator=dice)]
        x *= 2.0 ** torch.randint(-60, 60, (rows, 1), generator=dice)
        x *= torch.tensor([1.0, -1.0])[torch.randint(2, (rows, stride), generator=dice)]
    if kind == "ends":
        ends = torch.tensor([0.0, 2.0**-133, 2.0**-125, 1.5 * 2.0**-125, 1.75 * 2.0**-125, 3e38])
        x = x / x.abs().amax() * ends[torch.randint(len(ends), (rows, 1), generator=dice)]
        x[torch.rand(rows, generator=dice) < 0.3] = -0.0
    if kind == "odd":
        odd = torch.tensor([NAN, inf, -inf])[torch.randint(3, (rows, stride), generator=dice)]
        x = torch.where(torch.rand(rows, stride, generator=dice) < 0.1, odd, x)
    x[:, n:] = 2.0**100
    x = x.bfloat16()
    codes = torch.zeros(rows, ceil(n / 2), dtype=torch.int64)
    scales = torch.zeros(rows, ceil(n / BLOCK), dtype=torch.int64)
    for r, j in product(range(rows), range(scales.shape[1])):
        part = x[r, j * BLOCK : min(n, (j + 1) * BLOCK)].double()
        c = _scale_of(part)
        scales[r, j] = c
        for i, value in enumerate(part.tolist(), j * BLOCK):
            codes[r, i // 2] += (0 if c == 255 else _code_of(value, 2.0 ** (c - 127))) << i % 2 * 4
    empty = lambda like: torch.full_like(like, 0x99, dtype=torch.uint8)  # noqa: E731
    named = {"x": x, "codes": empty(codes), "scales": empty(scales)}
    grid = 1 if alone else ceil(rows / ROWS), ceil(n / BLOCK)
    if alone:
        codes[ROWS:], scales[ROWS:] = 0x99, 0x99
    moved = kernel.run(answers, "mxfp4", grid, named, (rows, n, stride, ROWS, BLOCK))
    wrong = _differs("scales", named["scales"], scales.double(), 0.0)
    for name, lower in (("lower", True), ("upper", False)):
        got, right = (c % 16 if lower else c // 16 for c in (named["codes"].long(), codes))
        wrong = wrong or _differs("codes", got, right.double(), 0.0, f", its {name} four bits")
    return {"wrong": wrong} | moved.moved


def _scale_of(numbers) -> int:
    """The first code whose six scales reach all numbers."""
    most = numbers.abs().max().item()
    if not most < inf:
        return 255
    return next(c for c in range(255) if most <= 6 * 2.0 ** (c - 127))


def _code_of(value: float, scale: float) -> int:
    """The four bits of a number: of all codes the nearest, and of two the even one."""
    from math import copysign

    off = [(abs(abs(value) / scale - one), i % 2, i) for i, one in enumerate(MAGNITUDES)]
    return min(off)[2] + 8 * (copysign(1.0, value) < 0)


def adamw(
    answers, n, BLOCK, total=4.0, limit=1.0, lr=2.0**-3, decay=0.0, ties=False, step=4, seed=0
) -> dict:
    """Run `adamw`: as `mxfp4`. With `ties` most weights lie in the middle of two of bf16."""
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    mean, square = (torch.randn(n, generator=dice) for _ in range(2))
    square = square.square()
    gradient = torch.randn(n, generator=dice).bfloat16()
    bits = torch.randn(n, generator=dice).view(torch.int32).long()
    if ties:
        rest = torch.tensor([-32768, -32768, 32767, 0, 1, -1, -32767])
        rest = rest[torch.randint(len(rest), (n,), generator=dice)]
        bits = (bits >> 16 << 16) + rest
    upper = bits + 32768 >> 16 << 16
    weight = upper.to(torch.int32).view(torch.float32).bfloat16()
    w = bits.to(torch.int32).view(torch.float32).double()
    eps, beta1, beta2 = 2.0**-7, 0.9, 0.99
    rise1, rise2 = 1 - beta1**step, 1 - beta2**step
    named = {
        "weight": weight, "rest": (bits - upper).short(), "gradient": gradient,
        "mean": mean, "square": square, "total": torch.tensor([total]),
    }  # fmt: skip
    before = {name: x.clone() for name, x in named.items()}
    rest = (n, limit, lr, decay, beta1, beta2, rise1, rise2, eps, BLOCK)
    moved = kernel.run(answers, "adamw", (ceil(n / BLOCK),), named, rest)
    report = {"wrong": None, **moved.moved}
    if not total < inf:
        for name, x in named.items():
            report["wrong"] = report["wrong"] or _differs(name, x, before[name].double(), 0.0)
        return report
    g = gradient.double() * min(1.0, limit / sqrt(total) if total else 1.0)
    m, v = beta1 * mean.double() + (1 - beta1) * g, beta2 * square.double() + (1 - beta2) * g * g
    size = beta1 * mean.abs() + (1 - beta1) * g.abs()  # of what is added, which may cancel
    move = lr * (decay * w + m / rise1 / ((v / rise2).sqrt() + eps))
    grown = lr * (decay * w.abs() + size / rise1 / ((v / rise2).sqrt() + eps))
    got = (named["weight"].float().view(torch.int32).long() + named["rest"].long()).to(torch.int32)
    wrong = _differs("mean", named["mean"], m, 2e-6 * size)
    wrong = wrong or _differs("square", named["square"], v, 2e-6 * v)
    within = 2e-6 * (w.abs() + grown) if lr else 0.0 * w
    together = " of weight and rest together"
    report["wrong"] = wrong or _differs("w", got.view(torch.float32), w - move, within, together)
    return report


def _form(name: str, got, shape: list, dtype) -> tuple | None:
    """Which type and shape was expected and came, if they are not the same."""
    import torch

    form = lambda shape, dtype: f"{shape} of {dtype}".replace("torch.", "")  # noqa: E731
    if not isinstance(got, torch.Tensor):
        return name, form(shape, dtype), repr(got)[:200]
    came = form(list(got.shape), got.dtype)
    return None if came == form(shape, dtype) else (name, form(shape, dtype), came)


def _differs(name: str, got, right, within, more: str = "") -> tuple | None:
    """The first element that is off by more than `within`: its name, expected, got."""
    same = ((got.double() - right).abs() <= within) | (got.isnan() & right.isnan())
    for place in (~(same | (got == right))).nonzero().tolist()[:1]:
        index = f"[{', '.join(map(str, place))}]{more}"
        return f"{name}{index}", right[tuple(place)].item(), got[tuple(place)].item()
    return None


# --- in the grader's process: delayed -------------------------------------------------------------


def one_scale(history: list[float], top: float, margin: int, before: float) -> float:
    """By trying powers of two from the largest down."""
    amax = max(history, default=0.0)
    if amax in (0.0, inf):
        return before
    return next(2.0**p for p in range(200, -200, -1) if amax * 2.0 ** (p + margin) <= top)


FROZEN = "an infinity in the history leaves the scale as it was, as does a history of zeros"
TRUE_AMAX = "a step's amax is taken before its numbers are scaled and clipped"
MIDDLE = "a number is lost where it is not 0 and becomes 0; half of `least` does"


def check_delayed(steps, top, least, length, margin, got, fates=True) -> None:
    """Fail with the first step whose scale, or whose counts, are others."""
    told = f"delayed({steps}, {top=}, {least=}, {length=}, {margin=})"
    told = told if len(told) < 400 else told[:400] + "…"
    form = isinstance(got, list | tuple) and len(got) == len(steps)
    if not form or not all(isinstance(one, list | tuple) and len(one) == 3 for one in got):
        text = f"{told}: expected {len(steps)} of (scale, clipped, lost), got {got!r}"
        raise WrongAnswer(text[:800], "")
    scale, amaxes, after = 1.0, [], []
    for i, (numbers, one) in enumerate(zip(steps, got, strict=True)):
        seen, late = amaxes[-length:], one_scale(after[-length:], top, margin, scale)
        scale = one_scale(seen, top, margin, scale)
        hint = TRUE_AMAX if one[0] == late else None
        hint = FROZEN if inf in seen or (seen and not any(seen)) else hint
        expect(f"{told}: scale of step {i}", one[0], scale, 1e-12 * scale, hint)
        clipped = len([x for x in numbers if abs(x) * scale > top])
        lost = len([x for x in numbers if x and abs(x) * scale * 2 <= least])
        if fates:
            expect(f"{told}: clipped in step {i}, scale {scale:g}", one[1], clipped)
            expect(f"{told}: lost in step {i}, scale {scale:g}", one[2], lost, hint=MIDDLE)
        amaxes.append(max((abs(x) for x in numbers), default=0.0))
        after.append(min(amaxes[-1], top / scale))


# --- in the grader's process: formats -------------------------------------------------------------

CHOICES = {
    "weights": ("nearest", "stochastic", "kahan", "master"),
    "moments": ("bf16", "fp32"),
    "gradients": ("bf16", "fp32"),
    "matmuls": ("bf16", "fp8"),
    "keep": ("all", "inputs"),
}
KEYS = (*CHOICES, "parts", "bytes", "seconds")


def spacing_at(x: float, fraction: int) -> float:
    """How far numbers with so many bits of fraction are apart at x."""
    power = 1.0
    while power > x:
        power /= 2
    while power * 2 <= x:
        power *= 2
    return power / 2**fraction


def fails(run, weights, moments, gradients, matmuls, keep, parts) -> str | None:
    """Why something does not train, in words."""
    u, w = run["update"], run["weight"]
    half = spacing_at(w, 23 if weights == "master" else 7) / 2
    half /= 256 if weights == "kahan" else 1
    if weights != "stochastic" and u <= half:
        return f"an update of {u:g} is not above {half:g}, so the weight does not move"
    if weights == "stochastic":
        step = spacing_at(w, 7)
        up = u / step - floor(u / step)
        spread = step * sqrt(run["steps"] * up * (1 - up))
        if spread > run["noise"] * w:
            return f"after {run['steps']} steps the noise is {spread:.3g}, not {run['noise']:g} w"
    off = 2.0 ** (-8 if moments == "bf16" else -24) / (1 - run["beta2"])
    if off > run["stale"]:
        return f"a second moment may be off by {off:.3g} of itself, more than {run['stale']:g}"
    if gradients == "bf16" and parts - 1 > 256:
        return f"a sum of {parts - 1} parts in bf16 does not see another"
    return None


def costs(chip, model, run, weights, moments, gradients, matmuls, keep, parts):
    """Bytes in memory, and seconds."""
    every = model["layers"] * sum(k * n for k, n in model["linear"])
    params = every + model["others"]
    tokens = run["sequences"] // parts * run["length"]
    beside = {"nearest": 0, "stochastic": 0, "kahan": 2, "master": 4}[weights]
    m, g = {"bf16": 4, "fp32": 8}[moments], {"bf16": 2, "fp32": 4}[gradients]
    inputs = sum(k for k, _ in model["linear"]) * (1 if matmuls == "fp8" else 2)
    layer = (inputs + 2 * model["between"]) * tokens
    kept = layer * model["layers"]
    if keep == "inputs":
        kept = layer + model["layers"] * 2 * model["linear"][0][0] * tokens
    nbytes = params * (2 + beside + m + g) + kept
    times = 2 if keep == "inputs" else 1
    seconds = parts * (times + 2) * 2 * every * tokens / chip[matmuls]
    if matmuls == "fp8":
        numbers = sum(times * (k * tokens + k * n) + n * tokens for k, n in model["linear"])
        seconds += parts * model["layers"] * numbers * 6 / chip["bandwidth"]
    reads = g + m + beside + (0 if weights == "master" else 2)
    writes = m + beside + 2
    return nbytes, seconds + params * (reads + writes) / chip["bandwidth"]


def all_formats(chip, model, run) -> list[tuple]:
    """All that train, as (seconds, bytes, choices)."""
    parts = [p for p in range(1, run["sequences"] + 1) if run["sequences"] % p == 0]
    found = []
    for choice in product(*CHOICES.values(), parts):
        if fails(run, *choice) is None:
            nbytes, seconds = costs(chip, model, run, *choice)
            found.append((seconds, nbytes, choice))
    return found


def shown(one: tuple) -> str:
    """A choice with its bytes and seconds, short enough to be read."""
    seconds, nbytes, choice = one
    return f"{', '.join(map(str, choice))} parts, {nbytes} bytes, {seconds:.7g} s"


def check_formats(told, chip, model, run, got, fastest=True) -> None:
    """Fail unless the choice trains and fits, with its bytes, and is soonest, with its seconds."""
    fit = sorted(one for one in all_formats(chip, model, run) if 10 * one[1] <= 9 * chip["memory"])
    if got is None:
        if fit:
            text = f"{told}: expected something like {shown(fit[0])}, got None"
            raise WrongAnswer(text, "something trains and fits here")
        return
    if not isinstance(got, dict) or set(got) != set(KEYS):
        text = f"{told}: expected a dict of {', '.join(KEYS)}, got {got!r}"
        raise WrongAnswer(text[:550], "")
    for name, words in CHOICES.items():
        if got[name] not in words:
            raise WrongAnswer(f"{told}: {name}: expected one of {words}, got {got[name]!r}", "")
    parts = got["parts"]
    whole = isinstance(parts, int) and not isinstance(parts, bool) and parts > 0
    if not whole or run["sequences"] % parts:
        many = run["sequences"]
        raise WrongAnswer(f"{told}: parts: expected a divisor of {many}, got {parts!r}", "")
    choice = tuple(got[name] for name in KEYS[:6])
    name = f"{told}: {', '.join(map(str, choice))} parts"
    why = fails(run, *choice)
    if why:
        raise WrongAnswer(f"{name}: expected choices that train, got ones that do not: {why}")
    nbytes, seconds = costs(chip, model, run, *choice)
    expect(f"{name}: bytes", got["bytes"], nbytes, 1e-9 * nbytes)
    if 10 * nbytes > 9 * chip["memory"]:
        room = f"{9 * chip['memory'] / 10:g}"
        raise WrongAnswer(f"{name}: expected at most {room} bytes, got {nbytes}", "it does not fit")
    if fastest:
        expect(f"{name}: seconds", got["seconds"], seconds, 1e-9 * seconds)
        if seconds > fit[0][0] * (1 + 1e-9):
            dear = "yours trains and fits, and another is sooner done: compare all choices together"
            came = shown((seconds, nbytes, choice))
            raise WrongAnswer(f"{told}: expected {shown(fit[0])}, got {came}", dear)


# --- what was measured ----------------------------------------------------------------------------

CHANGED = "write into nothing that you are given"


def check(case: str, report: dict, hints: dict | None = None) -> None:
    """Fail with the first wrong element, expected beside got."""
    if report["wrong"] is not None:
        name, *both = report["wrong"]
        hint = (hints or {}).get(name.partition("[")[0])
        hint = CHANGED if both[-1] == "changed" else hint
        shown = [f"{x:.7g}" if isinstance(x, float) else x for x in both]
        shown = shown if shown[0] != shown[1] else [f"{x!r}" for x in both]
        raise WrongAnswer("{}: {}: expected {}, got {}".format(case, name, *shown), hint)


def cast_numbers(M, N, K) -> int:
    """The fewest casts: x and dy along each of their dims, w once."""
    return 2 * M * K + 2 * M * N + N * K


def check_casts(case: str, report: dict, M: int, N: int, K: int, block: int) -> None:
    """Fail if more is cast than the fewest, or those with all dims filled up to whole blocks."""
    filled = (-(-size // block) * block for size in (M, N, K))
    told = f"{case}: numbers cast to torch.float8_e4m3fn"
    fewest = cast_numbers(M, N, K)
    few = "cast with torch, as in .to(torch.float8_e4m3fn): rounding by arithmetic is no cast"
    hint = few if report["casts"] < fewest else None
    between(told, report["casts"], fewest, cast_numbers(*filled), hint)


def check_moved(case: str, report: dict, loads: dict, stores: dict) -> None:
    """Fail with the first number that is loaded, or stored, more or less often than it has to be.

    `loads` and `stores` have limits for each tensor, as in weft.grade.expect_each: a pair, or one
    number or list where no right answer can differ.
    """
    for verb, limits, kind in (("reads", loads, "loads"), ("writes", stores, "stores")):
        for name, limit in limits.items():
            least, most = limit if isinstance(limit, tuple) else (limit, limit)
            expect_each(f"{case}: times that it {verb} {name}", report[kind][name], least, most)


def check_mxfp4(case: str, report: dict, rows: int, n: int, stride: int) -> None:
    """Right, each number read once and each byte written once."""
    check(case, report)
    once = [[1] * n + [0] * (stride - n)] * rows
    check_moved(
        case, report, {"x": once, "codes": 0, "scales": 0}, {"x": 0, "codes": 1, "scales": 1}
    )


def check_adamw(case: str, report: dict, programs: int, moves: bool = True) -> None:
    """Right, each number read once and written once; where nothing may move, none is written."""
    check(case, report)
    once = 1 if moves else (0, 1)  # it may be read before `total` is looked at
    state = dict.fromkeys(("weight", "rest", "mean", "square"), once)
    loads = state | {"gradient": once, "total": programs}
    stores = dict.fromkeys(state, int(moves)) | {"gradient": 0, "total": 0}
    check_moved(case, report, loads, stores)
