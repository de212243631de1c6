"""What runs for this topic's tests beside the answers: tensors, ranks, a kernel, the counting."""

import importlib.util
import os
from fractions import Fraction
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
    with live():
        torch.zeros(1).add_(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


# --- the loss from what parts say -----------------------------------------------------------------


def anything(like, dice):
    """NaN in about half of the places, in the others infinities, finite and very large numbers."""
    import torch

    values = torch.tensor([NAN, NAN, NAN, NAN, NAN, 5.0, 1e30, -1e30, -float("inf"), float("inf")])
    return values[torch.randint(len(values), like.shape, generator=dice)].to(like.dtype)


def drawn(T, words, sizes, seed, large=2.0, absent=0.0, middle=0.0):
    """Scores of all parts, padded to their sizes, targets, and what the parts say of each token.

    Anything stands in padding, in tokens that do not count, and in what is said of these.
    """
    import torch

    dice = torch.Generator().manual_seed(seed)
    scores = torch.randn(T, sum(sizes), generator=dice).mul(large).add(middle).clamp(-300, 300)
    targets = torch.randint(words, (T,), generator=dice)
    targets[torch.rand(T, generator=dice) < absent] = -1
    scores[:, words:] = anything(scores[:, words:], dice)
    stats = torch.zeros(len(sizes), T, 4, dtype=torch.float64)
    parts = scores.split(sizes, 1)
    first = 0
    for said, part in zip(stats, parts, strict=True):
        own = part[:, : max(0, min(words - first, part.shape[1]))].double()
        said[:, 0] = float("-inf")
        if own.shape[1]:
            said[:, 0] = own.amax(1)
        said[:, 1] = (own - said[:, :1]).exp().sum(1)
        said[:, 2] = own.sum(1)
        for t in ((targets >= first) & (targets < first + own.shape[1])).nonzero()[:, 0].tolist():
            said[t, 3] = own[t, targets[t] - first]
        first += part.shape[1]
    scores[targets < 0] = anything(scores[targets < 0], dice)
    stats[:, targets < 0] = anything(stats[:, targets < 0], dice)
    return scores, targets, stats.float()


def finish(
    answers, T, words, sizes, smoothing, z, large=2.0, absent=0.0, middle=0.0, seed=0
) -> list:
    """Run `finish` for each of the parts: where it is wrong, and bytes alive beside scores."""
    import torch

    from weft.meter import live

    scores, targets, stats = drawn(T, words, sizes, seed, large, absent, middle)
    rows = (targets >= 0).nonzero()[:, 0]
    leaf = scores[:, :words].double().where((targets >= 0)[:, None], 0.0).requires_grad_()
    logs = leaf[rows].log_softmax(1)
    losses = (smoothing - 1) * logs.gather(1, targets[rows, None])[:, 0]
    losses = losses - smoothing * logs.mean(1) + z * leaf[rows].logsumexp(1) ** 2
    right = losses.sum() / max(1, len(rows))
    (slopes,) = torch.autograd.grad(right, leaf)
    slopes = torch.cat([slopes, slopes.new_zeros(T, sum(sizes) - words)], 1)
    steep = (1 + 2 * z * leaf.detach().logsumexp(1, keepdim=True)).abs()
    rounded = 1e-6 + 2e-7 * abs(middle)  # of p, as float32 has so many digits of lse
    within = 1e-6 + 3e-5 * slopes.abs() + (rounded * steep / max(1, len(rows)))
    reports, first, split = [], 0, (x.split(sizes, 1) for x in (scores, slopes, within))
    for part, wanted, most in zip(*split, strict=True):
        given = part.contiguous(), stats.clone(), targets.clone()
        before = [one.clone() for one in given]
        with live() as alive:
            got = answers.finish(*given, first, words, smoothing, z)
        if not isinstance(got, list | tuple) or len(got) != 2:
            raise WrongAnswer(f"finish: expected (loss, gradient), got {got!r}"[:500], "")
        loss = right.detach()
        wrong, size = None, 1e-5 + 3e-5 * (loss.abs() + leaf.detach().abs().max())
        for name, r, x, off in (("loss", loss, got[0], size), ("gradient", wanted, got[1], most)):
            wrong = wrong or _form(name, x, r.float()) or _differs(name, x, r, off)
        for name, x, r in zip(("scores", "stats", "targets"), given, before, strict=True):
            same = torch.equal(x.nan_to_num(7.0), r.nan_to_num(7.0))
            wrong = wrong or (None if same else (name, "left as it was", "changed"))
        reports.append({"wrong": wrong, "first": first, "alive": alive.peak})
        first += part.shape[1]
    return reports


def _form(name: str, got, right) -> tuple | None:
    """Which type and shape was expected and came, if they are not the same."""
    import torch

    form = lambda x: f"{list(x.shape)} of {x.dtype}".replace("torch.", "")  # noqa: E731
    if isinstance(got, torch.Tensor) and form(got) == form(right):
        return None
    return name, form(right), form(got) if isinstance(got, torch.Tensor) else repr(got)[:200]


def _differs(name: str, got, right, within) -> tuple | None:
    """The first element that is off by more than `within`: its name, expected, got."""
    same = (got.double() - right).abs() <= within
    for place in (~(same | (got == right))).nonzero().tolist()[:1]:
        index = f"[{', '.join(map(str, place))}]" if place else ""
        return f"{name}{index}", right[tuple(place)].item(), got[tuple(place)].item()
    return None


# --- ranks ----------------------------------------------------------------------------------------


def block(answers, cases, seed) -> list:
    """Run `block` on real ranks; what each measured for each (lengths, heads, hidden, D, K)."""
    from weft.grade import ranks

    ranks.written(answers, "block", *[None] * 11)
    run = [(len(case[0]), told_block(case), *case, seed) for case in cases]
    return ranks.run(answers, RANKS, "one_rank", run)


# --- a kernel -------------------------------------------------------------------------------------


def statistics(answers, T, n, stride, first, ROWS, COLUMNS, absent=0.0, large=2.0, seed=0) -> dict:
    """Run `statistics` under Triton's interpreter: where it is wrong, what it loads and stores."""
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    scores = torch.randn(T, stride, generator=dice).mul(large).clamp(-300, 300)
    scores[:, n:] = anything(scores[:, n:], dice)
    targets = torch.randint(max(0, first - 2), first + n + 2, (T,), generator=dice)
    none = torch.tensor([-1, -100])[torch.randint(2, (T,), generator=dice)]
    targets = targets.where(torch.rand(T, generator=dice) >= absent, none)
    right = torch.zeros(T, 4, dtype=torch.float64)
    for t, target in enumerate(targets.tolist()):
        if target < 0:
            scores[t] = anything(scores[t], dice)
            continue
        own = scores[t, :n].double()
        most = own.max() if n else torch.tensor(float("-inf"))
        found = own[target - first] if first <= target < first + n else 0.0
        right[t] = torch.tensor([most, (own - most).exp().sum(), own.sum(), found])
    named = {"scores": scores, "targets": targets.int(), "stats": torch.full((T, 4), NAN)}
    grid = (-(-T // ROWS),)
    moved = kernel.run(answers, "statistics", grid, named, (T, n, stride, first, ROWS, COLUMNS))
    sizes = right.nan_to_num(neginf=0.0).abs()
    sizes[:, 2] += scores[:, :n].double().abs().sum(1).where(targets >= 0, 0.0)
    wrong = _differs("stats", named["stats"], right, 1e-6 + 2e-5 * sizes)
    return {"wrong": wrong, "counts": (targets >= 0).int().tolist()} | moved.moved


# --- in the grader's process: reads ---------------------------------------------------------------


def heads_of(H, n, rank) -> range:
    """The query heads of a rank."""
    begins = [0]
    for r in range(n):
        begins.append(begins[-1] + (H + n - 1 - r) // n)
    return range(begins[rank], begins[rank + 1])


def heads_in(H, G, n, rank) -> list[tuple[str, int]]:
    """The heads of a rank's part, by kind, in their order."""
    own = heads_of(H, n, rank)
    kv = sorted({h // (H // G) for h in own})
    return [
        *(("query head", h) for h in own),
        *(("key", g) for g in kv),
        *(("value", g) for g in kv),
    ]


def right_reads(H, G, K, t, u, rank) -> list[tuple[int, int, int]]:
    """Row by row, each in the first file that has it; then neighbours together."""
    files = [heads_in(H, G, t, i) for i in range(t)]
    rows = []
    for head in heads_in(H, G, u, rank):
        file = next(i for i, heads in enumerate(files) if head in heads)
        rows += [(file, files[file].index(head) * K + i) for i in range(K)]
    found = []
    for file, row in rows:
        if found and found[-1][0] == file and found[-1][2] == row:
            found[-1][2] += 1
        else:
            found.append([file, row, row + 1])
    return [tuple(one) for one in found]


FIRST = "the head is in this file, too: read it from the first of those that have it"


def check_reads(H, G, K, t, u, rank, got) -> None:
    """Fail with the first row of a rank's part that is read from elsewhere; then by the reads."""
    told, right = f"reads({H=}, {G=}, {K=}, {t=}, {u=}, {rank=})", right_reads(H, G, K, t, u, rank)
    whole = lambda x: isinstance(x, int) and not isinstance(x, bool)  # noqa: E731
    if not isinstance(got, list | tuple) or not all(
        isinstance(one, list | tuple) and len(one) == 3 and all(map(whole, one)) for one in got
    ):
        raise WrongAnswer(f"{told}: expected {right}, got {got!r}"[:500], "")
    came = [tuple(one) for one in got]
    heads = heads_in(H, G, u, rank)
    size = len(heads) * K
    wide = sum(end - begin for _, begin, end in came)
    if wide != size or any(begin >= end for _, begin, end in came):
        name = f"{told}: rows of {came}" if len(came) < 12 else f"{told}: rows"
        expect(name, wide, size)
        raise WrongAnswer(f"{told}: expected {right}, got {came}"[:1000], "a read has a row")
    place = lambda reads: [(f, row) for f, begin, end in reads for row in range(begin, end)]  # noqa: E731
    begins = {head: set() for head in heads}  # in all files that have it
    for file in range(t):
        for at, head in enumerate(heads_in(H, G, t, file)):
            begins.setdefault(head, set()).add((file, at * K))
    for i, (wanted, found) in enumerate(zip(place(right), place(came), strict=True)):
        kind, number = heads[i // K]
        file, row = found
        hint = FIRST if (file, row - i % K) in begins[heads[i // K]] else None
        expect(f"{told}: row {i}, of {kind} {number}, is (file, row)", found, wanted, hint=hint)
    joined = "a read that begins in the same file where the one before it ends is no new read"
    expect(f"{told}: reads", came, right, hint=joined)


# --- in the grader's process: a degree ------------------------------------------------------------


def one_degree(node, model, t, how) -> tuple[int, float] | None:
    """The bytes in a rank's memory and the seconds of a microbatch; None if t cannot be."""
    m = model
    D, T, L, K = m["width"], m["tokens"], m["layers"], m["key"]
    own = [Fraction(m[name], t) for name in ("heads", "hidden", "tokens")]
    groups = Fraction(m["groups"], t)
    if any(x.denominator > 1 for x in own) or (groups.denominator > 1 and groups.numerator > 1):
        return None
    heads, hidden, tokens = map(int, own)
    groups = max(1, int(groups))
    weights = {
        "q": heads * K * D,
        "kv": 2 * groups * K * D,
        "o": heads * K * D,
        "mlp": 3 * D * hidden,
    }
    kept = {"x": tokens * D, "norm": T * D, "qkv": T * K * (heads + 2 * groups), "a": T * K * heads}
    kept |= {"mlp": 3 * T * hidden}
    again = {"all": [], "regather": ["norm"], "recompute": ["norm", "qkv", "a", "mlp"]}[how]
    layer = sum(size for name, size in kept.items() if name not in again)
    layer += tokens * D * (how == "regather")
    numbers = m["flying"] * L * layer
    numbers += sum(kept[name] for name in again) * (how == "recompute")
    nbytes = 2 * numbers + m["state"] * L * (sum(weights.values()) + D)
    forward = 2 * T * sum(weights.values()) + 2 * T * K * T * heads
    calls = 4 + (how != "all")
    inside, ports = node["inside"], node["gpus"] * node["outside"]
    link = inside if t <= node["gpus"] else min(inside, ports)
    sent = calls * 2 * (T - tokens) * D
    times = 4 if how == "recompute" else 3
    return nbytes, L * (times * forward / node["rate"] + sent / link)


def all_degrees(node, model, nodes) -> list[tuple]:
    """All there are, as (GPU seconds, t, what is kept, bytes, seconds)."""
    gpus = node["gpus"]
    ranks = [*range(1, gpus + 1), *(gpus * i for i in range(2, nodes + 1))]
    hows = "all", "regather", "recompute"
    every = [(t, how, one_degree(node, model, t, how)) for t in ranks for how in hows]
    return [(t * one[1], t, how, *one) for t, how, one in every if one]


PORTS = "over several nodes each port of a node carries a ring, and no link inside more than it can"


def fits(node, one: tuple) -> bool:
    return 10 * one[3] <= 9 * node["memory"]


def check_degree(told, node, model, nodes, got, cheapest=True) -> None:
    """Fail unless the choice fits, with its bytes, and costs least, with its seconds."""
    every = all_degrees(node, model, nodes)
    good = sorted(one for one in every if fits(node, one))
    form = isinstance(got, list | tuple) and len(got) == 4
    if got is not None and not form:
        raise WrongAnswer(f"{told}: expected (t, kept, bytes, seconds), got {got!r}"[:500], "")
    allowed = sorted({one[1] for one in every})
    hint = None if form and got[0] in allowed else f"t may be one of {allowed} here"
    if got is None or not good:
        expect(told, got, good[0][1:] if good else None, hint=hint)
        return
    one = next((one for one in every if one[1:3] == tuple(got[:2])), good[0])
    expect(f"{told}: (t, what is kept)", tuple(got[:2]), one[1:3], hint=hint)
    name = f"{told}: t={one[1]}, {one[2]}"
    expect(f"{name}: bytes in a rank's memory", got[2], one[3], 1e-9 * one[3])
    if not fits(node, one):
        expect(told, tuple(got), good[0][1:])
    if cheapest:  # the seconds first: with wrong ones another may seem to cost less
        hint = PORTS if one[1] > node["gpus"] else None
        expect(f"{name}: seconds", got[3], one[4], 1e-9 * one[4], hint)
    if cheapest and one[0] > good[0][0] * (1 + 1e-9):
        dear = "yours fits, and another costs less: look at its seconds, and compare t * seconds"
        expect(told, tuple(got), good[0][1:], hint=dear)


# --- what was measured ----------------------------------------------------------------------------


CHANGED = "write into nothing that you are given"
OTHERS = "a target that is none of words first to first + n - 1 has no score here: 0"


def check(case: str, report: dict, hint: str | None = None) -> None:
    """Fail with the first wrong element, expected beside got."""
    if report["wrong"] is not None:
        name, *both = report["wrong"]
        hint = CHANGED if both[-1] == "changed" else hint
        hint = OTHERS if name.startswith("stats[") and name.endswith(", 3]") else hint
        shown = [f"{x:.6g}" if isinstance(x, float) else x for x in both]
        shown = shown if shown[0] != shown[1] else [f"{x!r}" for x in both]
        raise WrongAnswer("{}: {}: expected {}, got {}".format(case, name, *shown), hint)


def check_parts(case: str, reports: list, hint: str | None = None) -> None:
    """Fail with the first part that is wrong."""
    for i, report in enumerate(reports):
        check(f"{case}, part {i}, from word {report['first']}", report, hint)


def told_block(case: tuple) -> str:
    """A case of block in words."""
    lengths, heads, hidden, D, K = (list(x) if isinstance(x, tuple) else x for x in case)
    return f"block, ranks of {lengths} tokens, {heads} heads and {hidden} columns, {D=}, {K=}"


SUMS = {  # hints for what is wrong where all before it is right
    "y": "a rank's own heads and columns give a summand for all tokens; its own x is added once",
    "dx": "y is right: norm(x) was copied to all ranks, so its gradient is a sum over ranks,"
    " attention's and the MLP's; x has one past both, too",
    "dgain": "each rank has put other tokens through the norm: its gradient is a sum over ranks",
    "dwkv": "each rank's heads have used the kv head: its gradient is a sum over ranks",
}


def check_block(case, ranks) -> None:
    """Fail with the first rank whose results are not those of one process."""
    for r, measured in enumerate(ranks):
        if measured["wrong"]:
            name = measured["wrong"].partition("[")[0]
            hint = CHANGED if measured["wrong"].endswith("changed") else SUMS.get(name)
            raise WrongAnswer(f"{told_block(case)}: rank {r}: {measured['wrong']}", hint)


def own_bytes(case, rank: int) -> int:
    """What a rank's matrices take."""
    _, heads, hidden, D, K = case
    return (2 * heads[rank] * K + 2 * K + 3 * hidden[rank]) * D * NUMBER


def check_alive(case, ranks, times: float) -> None:
    """Fail where a rank keeps more alive than so many times its own matrices."""
    for r, measured in enumerate(ranks):
        told = f"{told_block(case)}: bytes alive on rank {r}"
        at_most(told, measured["alive"], int(times * own_bytes(case, r)))


def sent_bytes(case) -> int:
    """What all ranks together have to send."""
    lengths, *_, D, K = case
    return (len(lengths) - 1) * (4 * sum(lengths) * D + 2 * (D + 2 * D * K)) * NUMBER


def check_bytes(case, ranks) -> None:
    """Fail if more is sent than two gathers, two scatters and a sum."""
    sent = [measured["sent"] for measured in ranks]
    at_most(f"{told_block(case)}: ranks send {sent} bytes, together", sum(sent), sent_bytes(case))


def check_loads(case: str, report: dict, n: int, stride: int) -> None:
    """Right, and everything loaded and stored as often as it has to be."""
    check(case, report)
    each = [[one] * n + [0] * (stride - n) for one in report["counts"]]
    for name, times in (("scores", each), ("targets", 1), ("stats", 0)):
        expect_each(f"{case}: times that it reads {name}", report["loads"][name], times, times)
    for name, counts in report["stores"].items():
        times = int(name == "stats")
        expect_each(f"{case}: times that it writes {name}", counts, times, times)
