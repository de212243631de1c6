"""What runs for this topic's tests beside the answers: tensors, ranks, a kernel, the counting."""

import importlib.util
import os
from fractions import Fraction
from itertools import accumulate
from math import comb
from pathlib import Path

from weft.grade import WrongAnswer, at_most, expect, expect_each

RANKS = Path(__file__).with_name("ranks.py")
NAN = float("nan")
NUMBER = 8  # bytes, float64


def warm() -> None:
    """Import what is slow to import; without torch and Triton only the first two can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch
    import torch.fx.experimental.symbolic_shapes  # which autograd imports under a meter

    import weft.run.world
    from weft.meter import live

    torch.set_num_threads(1)
    with live(), _operations():
        torch.zeros(1).add_(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


def _operations():
    """A context whose `count` says how many operations a GPU would launch a kernel for."""
    from weft.meter.mode import Mode

    class Operations(Mode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += not func.is_view
            return func(*args, **(kwargs or {}))

    return Operations()


# --- a loss for documents -------------------------------------------------------------------------


def balance(answers, T, E, k, begins, full=0.0, large=1.0, seed=0, middle=0.0) -> dict:
    """Run `balance`: where it is wrong, and its operations.

    `full` is the share of choices that find no room, `large` how far scores are from `middle`.
    """
    import torch

    dice = torch.Generator().manual_seed(seed)
    scores = torch.randn(T, E, generator=dice).mul(large).add(middle).clamp(-30, 30)
    bias = torch.randn(E, generator=dice)
    expert = (scores.sigmoid() + bias).topk(k).indices
    kept = torch.rand(T, k, generator=dice) >= full
    leaf = scores.double().requires_grad_()
    losses, within = [], []
    documents = (x.tensor_split(begins[1:]) for x in (leaf, expert))
    for rows, chosen in zip(*documents, strict=True):
        f = torch.bincount(chosen.flatten(), minlength=E) * E / chosen.numel()
        s = rows.sigmoid()
        losses.append((f * (s / s.sum(1, keepdim=True)).mean(0)).sum())
        within += [2e-5 * f.max().item() / (len(rows) * len(begins))] * len(rows)
    right = torch.stack(losses).mean()
    (slopes,) = torch.autograd.grad(right, leaf)
    with _operations() as operations:
        got = answers.balance(scores, expert, kept, list(begins))
    if not isinstance(got, list | tuple) or len(got) != 2:
        raise WrongAnswer(f"balance: expected (loss, gradient), got {got!r}"[:500], "")
    wrong, right = None, right.detach()
    rows = ("loss", right, 2e-5 * right), ("gradient", slopes, torch.tensor(within)[:, None])
    for (name, r, most), x in zip(rows, got, strict=True):
        wrong = wrong or _form(name, x, r.float()) or _differs(name, x, r, most)
    return {"wrong": wrong, "operations": operations.count}


def _form(name: str, got, right) -> tuple | None:
    """Which type and shape was expected and came, if they are not the same."""
    import torch

    form = lambda x: f"{list(x.shape)} of {x.dtype}".replace("torch.", "")  # noqa: E731
    if isinstance(got, torch.Tensor) and form(got) == form(right):
        return None
    return name, form(right), form(got) if isinstance(got, torch.Tensor) else repr(got)[:200]


def _differs(name: str, got, right, within) -> tuple | None:
    """The first element that is off by more than `within`: its name, expected, got."""
    for place in (~((got.double() - right).abs() <= within)).nonzero().tolist()[:1]:
        index = f"[{', '.join(map(str, place))}]" if place else ""
        return f"{name}{index}", right[tuple(place)].item(), got[tuple(place)].item()
    return None


# --- ranks ----------------------------------------------------------------------------------------


def merged(answers, cases, seed) -> list:
    """Run `merged` on real ranks; what each measured for each (lengths, e, E, k, most, D, F)."""
    from weft.grade import ranks

    ranks.written(answers, "merged", *[None] * 10)
    run = [(len(case[0]), told_merged(case), *case, seed) for case in cases]
    return ranks.run(answers, RANKS, "one_rank", run)


# --- a kernel -------------------------------------------------------------------------------------


def fused(answers, counts, dropped, k, D, N, BLOCK, seed=0) -> dict:
    """Run `fused` under Triton's interpreter: where it is wrong, what it loads and stores.

    counts are how many choices each expert has, `dropped` how many none has; k has to divide all
    of them together. A token without a kept choice is NaN, and so is a weight without one.
    """
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    E, C = len(counts), sum(counts) + dropped
    order = torch.randperm(C, generator=dice)
    ends = list(accumulate(counts))
    x, w = (torch.randn(*shape, generator=dice) for shape in ((C // k, D), (E, D, N)))
    weight = torch.rand(C, generator=dice)
    lost = order[ends[-1] :]
    weight[lost] = NAN
    there = torch.zeros(C // k, dtype=torch.int64).index_add_(
        0, order[: ends[-1]] // k, torch.ones(ends[-1], dtype=torch.int64)
    )
    x[there == 0] = NAN
    right = torch.zeros(C, N, dtype=torch.float64)
    for e, (end, count) in enumerate(zip(ends, counts, strict=True)):
        own = order[end - count : end]
        right[own] = weight[own, None].double() * (x[own // k].double() @ w[e].double())
    named = {"x": x, "w": w, "order": order.int(), "weight": weight}
    named |= {"ends": torch.tensor(ends, dtype=torch.int32), "y": torch.full((C, N), NAN)}
    sizes = E + 1, D, N
    tiles = (1 << (size - 1).bit_length() for size in sizes)
    moved = kernel.run(
        answers, "fused", (C // BLOCK + E + 1,), named, (C, k, E, D, N, BLOCK, *tiles)
    )
    wrong = _differs("y", named["y"], right, 1e-4)
    kept = (weight == weight).int().tolist()
    matrices = [-(-count // BLOCK) for count in counts]
    loads = {"order": 1, "weight": kept, "x": there.tolist(), "w": matrices}
    return {"wrong": wrong, "asked": loads} | moved.moved


# --- in the grader's process: drops ---------------------------------------------------------------


def told_drops(choices, E, percent) -> str:
    shown = choices if sum(map(len, choices)) <= 12 else f"{[len(x) for x in choices]} tokens"
    return f"drops({shown}, {E=}, {percent=})"


def dropped(choices, E, percent) -> list[tuple[int, int, int]]:
    """The choices that have no place: each expert by itself, at home and then from what is left."""
    lost = []
    for expert in range(E):
        left, waiting = 0, []
        for rank, tokens in enumerate(choices):
            asked = sorted(
                (chosen.index(expert), rank, token)
                for token, chosen in enumerate(tokens)
                if expert in chosen
            )
            total = sum(map(len, tokens))
            places = -((-total * percent) // (100 * E))
            left += max(0, places - len(asked))
            waiting += asked[places:]
        lost += sorted(waiting)[left:]
    return sorted((rank, token, choice) for choice, rank, token in lost)


def check_drops(choices, E, percent, got) -> None:
    """Fail with the first choice that is dropped and should not be, or the reverse."""
    told, right = told_drops(choices, E, percent), dropped(choices, E, percent)
    if not isinstance(got, list | tuple) or not all(
        isinstance(one, list | tuple) and len(one) == 3 for one in got
    ):
        raise WrongAnswer(f"{told}: expected {right}, got {got!r}"[:500], "")
    came = [tuple(one) for one in got]
    for one in sorted({*right} ^ {*came}, key=str)[:1]:
        what = "dropped" if one in right else "kept"
        other = "kept" if one in right else "dropped"
        name = f"{told}: choice (rank, token, choice) {one}"
        raise WrongAnswer(f"{name}: expected it {what}, got it {other}"[:1000])
    expect(f"{told}: in order", came, right)


# --- in the grader's process: a grid --------------------------------------------------------------


def one_grid(node, model, nodes, batch, e, p) -> tuple[Fraction, float] | None:
    """The bytes that a GPU keeps and the seconds of a step; None if there is no such grid."""
    gpus, C, E = node["gpus"], model["tokens"], model["experts"]
    d = nodes * gpus // p
    if not d or E % e or d % e or p > model["layers"] or batch % (d * C) or batch < d * C:
        return None
    m, layers = batch // (d * C), -(-model["layers"] // p)
    matrix = model["width"] * model["hidden"]
    states = lambda params, gpus: params * (4 + Fraction(12, gpus))  # noqa: E731
    layer = states(3 * matrix * E // e, d // e) + states(model["other"], d)
    kept = layers * (layer + min(m, p) * C * model["kept"])
    compute = (2 + 4) * C * (3 * model["k"] * matrix + model["other"]) / node["rate"]
    groups, link = (e, "inside") if e <= gpus else (e // gpus, "outside")
    away = comb(E - E // groups, model["k"]) / comb(E, model["k"])  # a group has none of them
    sent = C * (groups - 1) * (1 - away) * model["width"] * 2  # bytes, once in one direction
    return kept, (m + p - 1) * layers * (compute + 4 * sent / node[link])


def all_grids(node, model, nodes, batch) -> list[tuple]:
    """All grids there are, as (seconds, e, p, bytes)."""
    degrees = [2**i for i in range((nodes * node["gpus"]).bit_length())]
    every = ((e, p, one_grid(node, model, nodes, batch, e, p)) for p in degrees for e in degrees)
    return [(one[1], e, p, one[0]) for e, p, one in every if one]


def fits(node, one: tuple) -> bool:
    return 10 * one[3] <= 9 * node["memory"]


def check_grid(told, node, model, nodes, batch, got, fastest=True) -> None:
    """Fail unless the grid fits, with its bytes, and is the fastest, with its seconds."""
    every = all_grids(node, model, nodes, batch)
    grids = sorted(one for one in every if fits(node, one))
    if got is None or not grids:
        expect(told, got, told_grid(grids[0]) if grids else None)
        return
    if not isinstance(got, list | tuple) or len(got) != 4:
        raise WrongAnswer(f"{told}: expected (e, p, bytes, seconds), got {got!r}"[:500], "")
    e, p = got[:2]
    one = next((one for one in every if one[1:3] == (e, p)), grids[0])
    expect(f"{told}: (e, p)", (e, p), one[1:3])
    name, kept = f"{told}: {e=}, {p=}", float(one[3])
    expect(f"{name}: bytes that a GPU keeps", got[2], kept, 1e-9 * kept)
    least = grids[0][0]
    if not fits(node, one):
        expect(told, tuple(got), told_grid(grids[0]))
    if fastest and one[0] > least * (1 + 1e-9):
        slower = (
            "yours fits, and another is faster: compare the seconds of all pairs (e, p) that fit"
        )
        expect(told, tuple(got), told_grid(grids[0]), hint=slower)
    if fastest:
        expect(f"{name}: seconds", got[3], one[0], 1e-9 * one[0])


def told_grid(one: tuple) -> tuple:
    took, e, p, kept = one
    return e, p, float(kept), took


# --- what was measured ----------------------------------------------------------------------------


def check(case: str, report: dict) -> None:
    """Fail with the first wrong element, expected beside got."""
    if report["wrong"] is not None:
        name, *both = report["wrong"]
        shown = [f"{x:.6g}" if isinstance(x, float) else x for x in both]
        shown = shown if shown[0] != shown[1] else [f"{x!r}" for x in both]
        raise WrongAnswer("{}: {}: expected {}, got {}".format(case, name, *shown))


def told_merged(case: tuple) -> str:
    """A case of merged in words."""
    lengths, e, E, k, most, D, F = case
    ranks = f"ranks of {list(lengths)} tokens, {e} of them in a row"
    return f"merged, {ranks}, {E=}, {k=}, {most=}, {D=}, {F=}"


SUMS = {  # hints for gradients that are wrong where y, and those before them, are right
    "dx": "y is right: the loss is a mean over n ranks, also for a rank's own x; and x has a"
    " gradient from the router too",
    "drouter": "the router's gradient is summed over all n ranks and divided by n",
    **dict.fromkeys(
        ("dup", "ddown"),
        "an expert's gradient is a sum over its row already: sum over replicas, divide by all n",
    ),
}


COPIED = (
    "tokens go to experts: experts stay where they are, and no matrix is copied for each of its"
    " rows, as up[i] with a tensor i is for torch.bmm"
)


def check_merged(case, ranks) -> None:
    """Fail with the first rank whose results are not those of one process."""
    for r, measured in enumerate(ranks):
        if measured["wrong"]:
            name = measured["wrong"].partition("[")[0]
            raise WrongAnswer(f"{told_merged(case)}: rank {r}: {measured['wrong']}", SUMS.get(name))


def check_alive(case, ranks, times: float) -> None:
    """Fail where a rank keeps more alive than so many times its own experts."""
    _, e, E, *_, D, F = case
    most = int(times * E // e * 2 * D * F * NUMBER)
    for r, measured in enumerate(ranks):
        told = f"{told_merged(case)}: bytes alive on rank {r}"
        at_most(told, measured["alive"], most, COPIED)


def check_bytes(case, ranks) -> None:
    """Fail if more is sent than each token once to each rank that it needs, and back."""
    lengths, e, E, *_, D, F = case
    told, mine, n = told_merged(case), E // e, len(lengths)
    most = sum(measured["rows"] for measured in ranks) * (4 * D + 2 * mine) * NUMBER
    sent = [measured["sent"] for measured in ranks]
    at_most(f"{told}: ranks send {sent} bytes, together", sum(sent), most)
    least = (D * E * (n > 1) + 2 * mine * D * F * (n > e)) * NUMBER
    for r, measured in enumerate(ranks):
        summed = f"{told}: bytes that rank {r} gives to sums over ranks"
        at_most(summed, measured["summed"], least, "sum each gradient once, and nothing else")


def check_loads(case: str, report: dict, D: int, N: int) -> None:
    """Right, and everything loaded and stored as often as it has to be."""
    check(case, report)
    for name, times in report["asked"].items():
        each = times
        if name == "x":
            each = [[one] * D for one in times]
        elif name == "w":
            each = [[[one] * N] * D for one in times]
        counted = report["loads"][name]
        each = [each] * len(counted) if isinstance(each, int) else each
        expect_each(f"{case}: times that it reads {name}", counted, each, each)
    for name, counts in report["stores"].items():
        times = int(name == "y")
        expect_each(f"{case}: times that it writes {name}", counts, times, times)
