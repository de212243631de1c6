"""What runs for this topic's tests beside the answers: tensors, tile memory, and the counting."""

import importlib.util
import os
from math import isfinite

from weft.grade import expect, expect_each


def warm() -> None:
    """Import what is slow to import; without torch and Triton only `merge` and `moved` can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    torch.set_num_threads(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


# --- tiles ----------------------------------------------------------------------------------------


def inputs(H: int, T: int, S: int, K: int, V: int, loud: float, seed: int) -> dict:
    """q, k, v and do by name, with heads; the scores of later keys are larger, to `loud` times."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    shapes = ("q", (H, T, K)), ("k", (S, K)), ("v", (S, V)), ("do", (H, T, V))
    made = {name: torch.randn(*shape, generator=generator) for name, shape in shapes}
    made["k"] *= torch.linspace(0.5, loud, S)[:, None]
    return made


def exact(x: dict, seen: list, cap: float = float("inf")) -> dict:
    """o, lse and delta of each head, and the gradients of k and v, in float64, all scores at hand.

    seen[i][j] says whether query i sees key j.
    """
    import torch

    q, k, v, do = (x[name].double() for name in ("q", "k", "v", "do"))
    s = q @ k.T * q.shape[-1] ** -0.5
    s = s if cap == float("inf") else cap * (s / cap).tanh()
    s = s.masked_fill(~torch.tensor(seen), float("-inf"))
    lse = s.logsumexp(-1)
    p = (s - lse.masked_fill(lse == float("-inf"), 0.0)[..., None]).exp()
    o = p @ v
    delta = (do * o).sum(-1)
    ds = p * (do @ v.T - delta[..., None])  # without a cap
    dk, dv = (ds.mT @ q * q.shape[-1] ** -0.5).sum(0), (p.mT @ do).sum(0)
    return {"o": o, "lse": lse, "delta": delta, "dk": dk, "dv": dv}


def forward(answers, T, S, K, V, tile_q, tile_k, window, cap, capacity, loud=2.0, seed=0) -> dict:
    """Run `forward`: where it is wrong, how often it loads and stores each element."""
    import torch

    from weft.grade.tiles import Tiles

    x = inputs(1, T, S, K, V, loud, seed)
    right = exact(x, seen(T, S, window), cap)  # before an answer has its hands on the tensors
    o, lse = torch.full((T, V), float("nan")), torch.full((T,), float("nan"))
    slow = {"q": x["q"][0].clone(), "k": x["k"], "v": x["v"], "o": o, "lse": lse}
    sram = Tiles(capacity, slow)
    with sram:
        answers.forward(*slow.values(), sram, tile_q, tile_k, window, cap)
    return _report(sram, {"o": (o, right["o"][0]), "lse": (lse, right["lse"][0])})


def dkdv(answers, H, T, S, K, V, tile_q, tile_k, capacity, loud=2.0, seed=0) -> dict:
    """Run `dkdv`, as `forward`."""
    import torch

    from weft.grade.tiles import Tiles

    x = inputs(H, T, S, K, V, loud, seed)
    right = exact(x, seen(T, S, S + T))
    dk, dv = torch.full((S, K), float("nan")), torch.full((S, V), float("nan"))
    slow = {name: x[name] for name in ("q", "k", "v", "do")}
    slow |= {name: right[name].float() for name in ("lse", "delta")} | {"dk": dk, "dv": dv}
    sram = Tiles(capacity, slow)
    with sram:
        answers.dkdv(*slow.values(), sram, tile_q, tile_k)
    return _report(sram, {"dk": (dk, right["dk"]), "dv": (dv, right["dv"])})


def _report(sram, outputs: dict) -> dict:
    wrong = next((w for w in (_wrong(n, *o) for n, o in outputs.items()) if w), None)
    return {"wrong": wrong} | sram.moved


def _wrong(name: str, got, right) -> tuple | None:
    """The first element that is off by more than float32 explains: its name, expected, got."""
    near = (got.double() - right).abs() <= 1e-4 * (1 + right.abs())
    off = ~(near & right.isfinite()) & (got.double() != right)  # nothing is near infinity
    for place in off.nonzero().tolist()[:1]:
        index = ", ".join(map(str, place))
        return f"{name}[{index}]", right[tuple(place)].item(), got[tuple(place)].item()
    return None


# --- a kernel -------------------------------------------------------------------------------------


def attend(answers, lengths, window, K, BLOCK, loud=2.0, seed=0) -> dict:
    """Run `attend` under Triton's interpreter on packed sequences: as `forward`."""
    import torch

    from weft.grade import kernel

    begin = begins(lengths)
    T = len(begin)
    made = inputs(1, T, T, K, K, loud, seed)
    right = exact(made, packed(begin, window))["o"][0]
    named = {"q": made["q"][0].clone(), "k": made["k"], "v": made["v"]}
    named["o"] = torch.full((T, K), float("nan"))
    named["begin"] = torch.tensor(begin, dtype=torch.int32)
    counts = kernel.run(answers, "attend", (T,), named, (window, K**-0.5, K, BLOCK))
    return {"wrong": _wrong("o", named["o"], right)} | counts.moved


# --- in the grader's process ----------------------------------------------------------------------


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


def seen(T: int, S: int, window: int) -> list:
    """Which of S keys each of T queries sees: the last `window` up to its own."""
    return [[0 <= i + S - T - j < window for j in range(S)] for i in range(T)]


def begins(lengths: list) -> list:
    """For each row of packed sequences of these lengths where its sequence begins."""
    return [sum(lengths[:n]) for n, length in enumerate(lengths) for _ in range(length)]


def packed(begin: list, window: int) -> list:
    """Which keys each row sees: the last `window` of its sequence up to its own."""
    rows = range(len(begin))
    return [[begin[i] <= j <= i < j + window for j in rows] for i in rows]


def visits(seen: list, tile_q: int, tile_k: int) -> tuple[tuple, tuple]:
    """How often queries and keys may be read: in how many pairs of tiles that are looked at.

    Limits for `check_moved`: once if it sees anything, or is seen, for nothing can be right
    without. More than that and less than once in each pair is as right: tiles that stay for the
    next round, or are larger than asked where there is room for it, or end where a mask does.
    """
    T, S = len(seen), len(seen[0])
    queries, keys = [0] * T, [0] * S
    for i in range(0, T, tile_q):
        rows = range(i, min(T, i + tile_q))
        for j in range(0, S, tile_k):
            columns = range(j, min(S, j + tile_k))
            if any(seen[row][key] for row in rows for key in columns):
                for row in rows:
                    queries[row] += 1
                for key in columns:
                    keys[key] += 1
    return ([int(any(row)) for row in seen], queries), (
        [int(any(k)) for k in zip(*seen, strict=True)],
        keys,
    )


def of_backward(T: int, S: int, H: int, tile_q: int, tile_k: int) -> dict:
    """What `dkdv` may load: the rows of each head once for each tile of keys that looks at them."""
    least, most = visits(seen(T, S, S + T), tile_q, tile_k)[0]
    rows = least, [max(1, n) for n in most]  # the numbers of all rows may be loaded at once
    q, numbers = (tuple([limit] * H for limit in both) for both in ((least, most), rows))
    return {"q": q, "do": q, "lse": numbers, "delta": numbers, "k": 1, "v": 1, "dk": 0, "dv": 0}


def of_kernel(begin: list, window: int) -> dict:
    """How often `attend` loads each row: a key once for each row that sees it."""
    keys = [sum(column) for column in zip(*packed(begin, window), strict=True)]
    keys = keys, keys
    return {"q": 1, "k": keys, "v": keys, "begin": 1, "o": 0}


def windowed(T, S, K, V, size, tile_q, tile_k, window, sinks, heads, stacked) -> tuple[int, int]:
    """Bytes read and written, pair of tiles by pair of tiles; see the answers' `moved`."""
    rows, keys = tile_q // heads if stacked else tile_q, 0
    for i in range(0, T, rows):
        own = range(i + S - T, min(T, i + rows) + S - T)  # the keys that queries stand at
        for j in range(0, S, tile_k):
            columns = range(j, min(S, j + tile_k))
            first, last = own[0] - window + 1, own[-1]
            near, early = columns[-1] >= first, columns[0] < sinks
            keys += len(columns) if columns[0] <= last and (near or early) else 0
    keys *= 1 if stacked else heads
    return size * (heads * T * K + keys * (K + V)), heads * T * (size * V + 4)


def same(case: str, got: float, expected: float, hint: str | None = None) -> None:
    """Two numbers to nine digits, infinities included; `hint` as in weft.grade.expect."""
    number = isinstance(got, int | float) and not isinstance(got, bool)
    near = number and isfinite(got) and abs(got - expected) <= 1e-9 * max(1.0, abs(expected))
    if not near:
        expect(case, got, expected, hint=hint)
