"""What runs for this topic's tests beside the answers: ranks, a kernel, and the counting."""

import importlib.util
import os
from collections import Counter
from pathlib import Path

from weft.grade import WrongAnswer, at_most, expect, expect_each

RANKS = Path(__file__).with_name("ranks.py")
NAN, INF = float("nan"), float("inf")


def warm() -> None:
    """Import what is slow to import; without torch and Triton only the first two can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    import weft.run.world
    from weft.meter import live

    torch.set_num_threads(1)
    with live():
        torch.zeros(1).add_(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


# --- ranks ----------------------------------------------------------------------------------------


def gradients(answers, cases, seed) -> list:
    """Run `gradients` on real ranks; what each measured for each (positions, window, H, G, K)."""
    from weft.grade import ranks

    ranks.written(answers, "gradients", *[None] * 10)
    run = [(len(case[0]), told_gradients(case), *case, seed) for case in cases]
    return ranks.run(answers, RANKS, "one_rank", run)


# --- a kernel -------------------------------------------------------------------------------------


def arrive(answers, T, rows, V, BLOCK, before=(), part=(), lse=0.0, apart=0.0, seed=0) -> dict:
    """Run `arrive` under Triton's interpreter: where it is wrong, what it loads and stores.

    The rows of o in `before`, and those of the part in `part`, have seen nothing. `lse` is about
    what log-sum-exps are, and those of the part are by `apart` larger.
    """
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    o, new = (torch.randn(count, V, generator=dice) for count in (T, len(rows)))
    own, its = (torch.randn(len(x), generator=dice) * 3 for x in (o, new))
    own, its = own + lse, (its + lse + apart) * LOG2_E
    own[list(before)], its[list(part)] = -INF, -INF
    o[list(before)], new[list(part)] = NAN, NAN
    right, right_lse = o.double(), own.double()
    for i, row in enumerate(rows):
        if i not in part:
            two = torch.stack([own[row].double(), its[i].double() / LOG2_E])
            both = torch.stack([o[row], new[i]]).double().nan_to_num()
            right[row], right_lse[row] = two.softmax(0) @ both, two.logsumexp(0)
    named = {"o": o, "lse": own, "part": new, "part_lse": its}
    named["rows"] = torch.tensor(rows, dtype=torch.int32)
    counts = kernel.run(answers, "arrive", (len(rows),), named, (V, BLOCK))
    wrong = None
    for name, x in (("o", right), ("lse", right_lse)):
        wrong = wrong or _differs(name, named[name], x, (2e-5 + 1e-6 * abs(lse)) * (1 + x.abs()))
    return {"wrong": wrong} | counts.moved


LOG2_E = 1.4426950408889634


def _differs(name: str, got, right, within) -> tuple | None:
    """The first element that is off by more than `within`: its name, expected, got.

    Where the right one is NaN, anything will do.
    """
    off = ~((got.double() - right).abs() <= within) & ~right.isnan() & (got != right)
    for place in off.nonzero().tolist()[:1]:
        index = ", ".join(map(str, place))
        return f"{name}[{index}]", right[tuple(place)].item(), got[tuple(place)].item()
    return None


# --- in the grader's process: a deal --------------------------------------------------------------


def told_deal(case: tuple) -> str:
    documents, n, block = case
    shown = list(documents) if len(documents) < 20 else f"{len(documents)} documents"
    return f"deal({shown}, {n=}, {block=})"


def check_dealt(case: tuple, got) -> None:
    """Fail unless each block is on one rank, and there are equally many on each."""
    documents, n, block = case
    told, count = told_deal(case), sum(documents) // block
    fits = isinstance(got, list | tuple) and len(got) == n
    if not fits or not all(isinstance(row, list | tuple) for row in got):
        raise WrongAnswer(f"{told}: expected {n} lists, got {got!r}"[:500], "")
    found = Counter(i for row in got for i in row)
    for i in found:
        if type(i) is not int or not 0 <= i < count:
            raise WrongAnswer(f"{told}: expected blocks 0 to {count - 1}, got {i!r}", "")
    for i in range(count):
        expect(f"{told}: ranks that hold block {i}", found[i], 1)
    for rank, row in enumerate(got):
        expect(f"{told}: blocks of rank {rank}", len(row), count // n)


def check_even(case: tuple, got) -> None:
    """Fail where the ranks are further apart than the blocks are."""
    check_dealt(case, got)
    scores = block_scores(case)
    busy = [sum(scores[i] for i in row) for row in got]
    told = f"{told_deal(case)}: ranks compute {busy} scores, busiest less idlest"
    at_most(told, max(busy) - min(busy), max(scores) - min(scores))


def block_scores(case: tuple) -> list[int]:
    """The pairs of a query and a key that each block computes, each counted."""
    documents, _, block = case
    owner = [i for i, length in enumerate(documents) for _ in range(length)]
    scores = [0] * (len(owner) // block)
    begin = 0
    for t, document in enumerate(owner):
        if t and document != owner[t - 1]:
            begin = t
        scores[t // block] += t - begin + 1
    return scores


# --- GPUs for a prompt ----------------------------------------------------------------------------


def check_prefill(told: str, node: dict, model: dict, T: int, seconds: float, got, parts=4):
    """Fail unless GPUs, grid, bytes and seconds are right: the first so many of these."""
    grids = found_grids(node, model, T, seconds)
    if got is None or not grids:
        expect(told, got, min(grids, default=None) and told_grid(min(grids)))
        return
    if not isinstance(got, list | tuple) or len(got) != 4:
        raise WrongAnswer(f"{told}: expected (a, b, bytes, seconds), got {got!r}", "")
    took, a, b, kept = min(grids)
    expect(f"{told}: GPUs, a * b", got[0] * got[1], a * b)
    if parts > 1:
        equal = [grid for grid in grids if grid[0] <= took * (1 + 1e-9) and grid[1] == got[0]]
        took, a, b, kept = equal[0] if equal else (took, a, b, kept)
        expect(f"{told}: a", got[0], a)
    rows = ("bytes that a GPU keeps", got[2], kept, 0), ("seconds", got[3], took, 1e-9 * took)
    for name, *one in rows[: max(0, parts - 2)]:
        expect(f"{told}: {name}, with {a} * {b} GPUs", *one)


def told_grid(grid: tuple) -> tuple:
    took, a, b, kept = grid
    return a, b, kept, took


def found_grids(node: dict, model: dict, T: int, seconds: float) -> list[tuple]:
    """The grids of the least n that fit and are in time, as (seconds, a, b, bytes)."""
    for n in (2**i for i in range(11)):
        every = [grid(node, model, T, a, n // a) for a in range(1, n + 1)]
        every = [one for one in every if one]
        fit = [one for one in every if one[3] <= node["memory"] * 9 // 10 and one[0] <= seconds]
        if fit:
            return fit
    return []


def grid(node: dict, model: dict, T: int, a: int, b: int) -> tuple | None:
    """What a grid takes and keeps, as (seconds, a, b, bytes); None if there is none such."""
    if any(x % a for x in (node["gpus"], model["kv_heads"])):
        return None
    C = T // (a * b)
    token = 2 * 2 * model["kv_heads"] * model["head"]  # bytes of keys and values, and of queries
    query = 2 * model["heads"] * model["head"]
    kept = 2 * model["params"] + model["layers"] * C * token
    kept += 2 * C * token * (b > 1) + C * (query + token) * (a > 1)
    given = 2 * C * (query + token / 2) * (1 - 1 / a)
    pairs = (a * C) ** 2 / 2
    step = 4 * pairs * model["head"] * model["heads"] / a / node["rate"]
    send = C * token / node["inside" if a * b <= node["gpus"] else "outside"]
    layer = given / node["inside"] + step + sum(max(step, send) for _ in range(b - 1))
    took = 2 * model["params"] * C / node["rate"] + model["layers"] * layer
    return took, a, b, kept


# --- what ranks measured --------------------------------------------------------------------------


def told_gradients(case: tuple) -> str:
    """A case of gradients in words."""
    positions, window, H, G, K = case
    held = f"ranks of {[len(row) for row in positions]} tokens"
    if sum(map(len, positions)) <= 16:
        held = f"positions {[list(row) for row in positions]}"
    return f"gradients, {held}, {window=}, {H=}, {G=}, {K=}"


def check_gradients(case, ranks) -> None:
    """Fail with the first rank whose gradients are not the whole sequence's."""
    for r, measured in enumerate(ranks):
        if measured["wrong"]:
            raise AssertionError(f"{told_gradients(case)}: rank {r}: {measured['wrong']}")


def check_bytes(case, ranks) -> None:
    """Fail if more is sent than each block and its gradients, once for each rank that sees it."""
    positions, window, _, G, K = case
    back = lambda i, j: 0 <= i - j < (window or 1 << 60)  # noqa: E731
    moved = 0
    for r, mine in enumerate(positions):
        for s, theirs in enumerate(positions):
            if r != s and any(back(i, j) for i in mine for j in theirs):
                moved += 2 * len(theirs) * G * 2 * K * 8
    sent = [measured["sent"] for measured in ranks]
    at_most(f"{told_gradients(case)}: ranks send {sent} bytes, together", sum(sent), moved)


def check_alive(case, ranks, blocks: float) -> None:
    """Fail where a rank keeps more than so many of its blocks alive."""
    positions, _, _, G, K = case
    for r, measured in enumerate(ranks):
        most = int(blocks * len(positions[r]) * G * 2 * K * 8)
        told = f"{told_gradients(case)}: bytes alive on rank {r}"
        at_most(told, measured["alive"], most, "one block is here and one arrives; no others")


def check_overlap(case, ranks) -> None:
    """Fail where a rank waits more than once for what it has not computed beside."""
    for r, measured in enumerate(ranks):
        told = f"{told_gradients(case)}: times that rank {r} waits with no matrix product since the"
        at_most(f"{told} receive was posted", measured["idle"], 1)


# --- a kernel's counts ----------------------------------------------------------------------------


def check(case: str, report: dict, hint: str | None = None) -> None:
    """Fail with the first wrong element, expected beside got."""
    if report["wrong"] is not None:
        name, expected, got = report["wrong"]
        shown = (f"{x:.6g}" if isinstance(x, float) else x for x in (expected, got))
        raise WrongAnswer("{}: {}: expected {}, got {}".format(case, name, *shown), hint)


def check_loads(case: str, report: dict, T, rows, V, before, part) -> None:
    """Right, and everything loaded and stored as often as it has to be."""
    check(case, report)
    merged = {row for i, row in enumerate(rows) if i not in part}
    wide = lambda mask: [[int(one)] * V for one in mask]  # noqa: E731
    here = [int(row in merged) for row in range(T)]
    seen = [int(i not in part) for i in range(len(rows))]
    o = wide(here[row] and row not in before for row in range(T))
    loads = {"o": o, "lse": here, "part": wide(seen), "part_lse": [1] * len(rows), "rows": seen}
    for name, times in loads.items():
        most = [1] * len(rows) if name == "rows" else times
        expect_each(f"{case}: times that it reads {name}", report["loads"][name], times, most)
    stores = {"o": wide(here), "lse": here}
    for name, counts in report["stores"].items():
        times = stores.get(name, 0)
        expect_each(f"{case}: times that it writes {name}", counts, times, times)
