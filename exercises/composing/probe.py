"""What runs for this topic's tests beside the answers: ranks, and other ways to each number.

These ways are answers, too: write your own before you read on. Answers that are graded cannot
import this file.
"""

import importlib.util
from fractions import Fraction
from itertools import permutations
from math import ceil, prod
from pathlib import Path

from weft.grade import WrongAnswer, at_most, expect

RANKS = Path(__file__).with_name("ranks.py")
NUMBER = 8  # bytes, float64


def warm() -> None:
    """Import what is slow to import; without torch the first four can run."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    import weft.run.world  # noqa: F401

    torch.set_num_threads(1)


# --- ranks ----------------------------------------------------------------------------------------


def clipped(answers, cases, seed) -> list:
    """Run `clipped` on real ranks; what each measured, case by case."""
    from weft.grade import ranks

    ranks.written(answers, "clipped", *[None] * 7)
    run = [(count(case[0]), told_clipped(case), named(case[0]), *case[1:], seed) for case in cases]
    return ranks.run(answers, RANKS, "one_rank", run)


def named(sizes) -> dict[str, int]:
    """The lengths of the axes by their names."""
    return dict(zip("ptrs", sizes, strict=True))


def count(sizes) -> int:
    """How many ranks there are."""
    p, t, r, s = sizes
    return p * t * r * s


def told_clipped(case) -> str:
    """A case of clipped in words."""
    sizes, shapes, cut, tied, zeros, share = case
    told = f"clipped, {named(sizes)}, shapes by stage {shapes}, cut={list(cut)}, {tied=}"
    return told + (", gradients of 0" if zeros else f", limit {share:g} times the norm")


def check_clipped(case, ranks, hint=None) -> None:
    """Fail with the first rank whose shards are not the right ones."""
    for r, measured in enumerate(ranks):
        if measured["wrong"]:
            changed = "write into nothing that you are given"
            own = changed if measured["wrong"].endswith("changed") else hint
            told = f"{told_clipped(case)}: rank {r}: {measured['wrong']}"
            norm = f"the norm is {measured['norm']:.6g}, the limit {measured['limit']:.6g}"
            raise WrongAnswer(f"{told}; {norm}", own)


def numbers(case) -> int:
    """How many numbers all ranks together have to send."""
    (p, t, r, s), shapes, cut, tied, *_ = case
    sent = 0
    for stage in shapes:
        for i, shape in enumerate(stage):
            N = prod(shape)
            part = ceil(N / s)
            sent += t * r * (s - 1) * s * part + t * s * 2 * (r - 1) * part
            sent += r * s * 2 * (t - 1) * part * (not cut[i])
            if i == tied:  # of a pair of stages, each says half of it
                sent += r * s * t * 2 * (p - 1) * part // p
    return sent


SPARE = 16  # numbers, of a rank: tokens, and squares


def sent_bytes(case) -> int:
    """What all ranks together may send."""
    return (numbers(case) + SPARE * count(case[0])) * NUMBER


def check_bytes(case, ranks) -> None:
    """Fail if more is sent."""
    sent = [measured["sent"] for measured in ranks]
    at_most(f"{told_clipped(case)}: ranks send {sent} bytes, together", sum(sent), sent_bytes(case))


# --- in the grader's process: between nodes -------------------------------------------------------


def digits(order, sizes, rank) -> dict[str, int]:
    """Where a rank is on each axis, as an odometer shows it."""
    found = {}
    for axis in order:
        rank, found[axis] = divmod(rank, sizes[axis])
    return found


def messages(order, sizes, sent) -> list[tuple]:
    """(axis, from, to, bytes) of all ranks."""
    n = sizes["t"] * sizes["c"] * sizes["d"] * sizes["p"]
    at = [digits(order, sizes, rank) for rank in range(n)]
    number = {tuple(sorted(place.items())): rank for rank, place in enumerate(at)}
    found, rows = [], {}
    for a, place in enumerate(at):
        there = lambda axis, i, place=place: number[tuple(sorted((place | {axis: i}).items()))]  # noqa: E731
        for axis in "tcd":
            b = there(axis, (place[axis] + 1) % sizes[axis])
            found.append((axis, a, b, sent[axis]))
        for step in (-1, 1):
            if 0 <= place["p"] + step < sizes["p"]:
                found.append(("p", a, there("p", place["p"] + step), sent["p"]))
        rows.setdefault((place["t"], place["p"]), []).append(a)
    for row in rows.values():
        for i, a in enumerate(row):
            for j, b in enumerate(row):
                if i != j and i // sizes["e"] == j // sizes["e"]:
                    found.append(("e", a, b, sent["e"]))
    return found


def right_crossed(order, sizes, per_node, sent) -> dict:
    found = {}
    for _, a, b, nbytes in messages(order, sizes, sent):
        pair = a // per_node, b // per_node
        if pair[0] != pair[1] and nbytes:
            found[pair] = found.get(pair, 0) + nbytes
    return found


AXES = {
    "t": "ring of tensor ranks",
    "c": "ring of context ranks",
    "d": "ring of data ranks",
    "p": "row of stages: both ways, and not from the last to the first",
    "e": "experts, whose ranks differ in c and d alone",
}


def check_crossed(order, sizes, per_node, sent, got) -> None:
    """Fail with the first pair of nodes whose bytes are others; name the axes that join them."""
    told = f"crossed({order!r}, {sizes}, {per_node=}, {sent})"
    right = right_crossed(order, sizes, per_node, sent)
    if not isinstance(got, dict):
        raise WrongAnswer(f"{told}: expected {right}, got {got!r}"[:1000], "")
    for pair in sorted(right.keys() | got.keys(), key=str):
        if got.get(pair) != right.get(pair):
            between = [
                (axis, nbytes)
                for axis, a, b, nbytes in messages(order, sizes, sent)
                if (a // per_node, b // per_node) == pair and nbytes
            ]
            by = {axis: sum(n for x, n in between if x == axis) for axis, _ in between}
            hint = "; ".join(f"{AXES[axis]}: {n} bytes" for axis, n in sorted(by.items()))
            expect(f"{told}: bytes of {pair}", got.get(pair), right.get(pair), hint=hint or None)


ORDERS = ["".join(one) for one in permutations("tcdp")]


# --- in the grader's process: conventions ---------------------------------------------------------


def forward(model, tokens) -> dict[str, Fraction]:
    """FLOPs of a token in forward, by what takes them."""
    D, K = model["width"], model["key"]
    parameters = D * K * (model["heads"] + model["groups"]) * 2
    parameters += D * model["hidden"] * model["matrices"]
    return {
        "matrices": Fraction(2 * parameters * model["layers"]),
        "pairs": Fraction(2 * model["layers"] * 2 * model["heads"] * K * tokens),
        "words": Fraction(2 * D * model["words"]),
        "padded": Fraction(2 * D * model["padded"]),
    }


def counted(model, tokens, attention, recompute, head, table) -> Fraction:
    """FLOPs of a token in a step, as somebody counts them."""
    of = forward(model, tokens)
    pairs = of["pairs"] * {"all": Fraction(1), "causal": Fraction(1, 2), "none": 0}[attention]
    total = 3 * (of["matrices"] + pairs + of[head])
    total += {"none": 0, "selective": pairs, "full": of["matrices"] + pairs}[recompute]
    return total + 3 * of[head] * (table and not model["tied"])


def right_undone(model, run, said) -> tuple[float, float, float]:
    how = (said[name] for name in ("attention", "recompute", "head", "table"))
    flops = counted(model, run["tokens"], *how)
    if "hours" in said:
        a_second = 10**12 / (Fraction(said["hours"]) * 3600)
    elif "tokens" in said:
        a_second = Fraction(said["tokens"])
    elif "share" in said:
        a_second = Fraction(said["share"]) * Fraction(said["peak"]) / flops
    else:
        a_second = Fraction(said["rate"]) / flops
    seconds = run["sequences"] * run["tokens"] / (a_second * run["gpus"])
    shares = [
        counted(model, run["tokens"], "all", again, "words", False) * a_second / int(run["peak"])
        for again in ("none", run["recompute"])
    ]
    return float(seconds), *map(float, shares)


PARTS = ("seconds of a step", "MFU", "HFU")


def check_undone(model, run, said, got) -> None:
    """Fail with the first of the three that is off, and the FLOPs of a token by part."""
    told, right = f"undone({model}, {run}, {said})", right_undone(model, run, said)
    how = (said[name] for name in ("attention", "recompute", "head", "table"))
    flops = counted(model, run["tokens"], *how)
    parts = ", ".join(f"{name} {float(x):g}" for name, x in forward(model, run["tokens"]).items())
    told += f", a token taking {float(flops):g} FLOPs as it was said, and in forward {parts}"
    if not isinstance(got, list | tuple) or len(got) != 3:
        raise WrongAnswer(f"{told}: expected (seconds, MFU, HFU), got {got!r}"[:1000], "")
    for name, x, r in zip(PARTS, got, right, strict=True):
        expect(f"{told}: {name}", x, r, 1e-9 * r)


# --- in the grader's process: a layout ------------------------------------------------------------


def layers_dealt(L, p, layer, head) -> tuple[int, int]:
    """Layers of the first rank and of the last one, by trying every way."""
    if p == 1:
        return L, L
    ways = []
    for last in range(L + 1):
        first = ceil(Fraction(L - last, p - 1))
        ways.append((max(first * layer, last * layer + head), last, first))
    return min(ways)[2], min(ways)[1]


def one_layout(cluster, model, batch, t, p, d, v, zero) -> tuple[list, float, dict]:
    """Bytes on the first rank and the last, seconds of a step, and what these are made of."""
    s, n, m = model["tokens"], cluster["gpus"], batch // d
    inner, outer = cluster["inside"], cluster["outside"]
    flops = 6 * s / (t * cluster["rate"])
    layer = flops * model["layer"] + 16 * s * model["width"] * (t - 1) / t / inner
    head = flops * model["head"]
    first, last = layers_dealt(model["layers"], p, layer, head)
    S = max(first * layer, last * layer + head) if p > 1 else last * layer + head
    has = [first * model["layer"], last * model["layer"] + model["head"]]
    share = 2 * (max(has) / t) * (d - 1) / d / (inner if t * d <= cluster["node"] else outer)
    each = S if zero == 1 else max(S, 3 * share)
    parts = {f"{m} microbatches of {each:.6g} s": m * each, "bubble": (p - 1) * each / v}
    parts["crossing"] = 0.0
    if p > 1:
        hop = 2 * s * model["width"] / t / (inner if n <= cluster["node"] else outer)
        parts["crossing"] = 2 * v * m * hop
    parts["data"] = max(0.0, 2 * share - S) if zero == 1 else 0.0
    flying = [Fraction(min(m, p)), Fraction(1)]
    if v > 1:
        flying = [Fraction(p * v + p - 1, v), Fraction((v - 1) * p + 1, v)]
    kept = []
    for i, layers in enumerate((first, last)):
        states = has[i] * (6 + 12 / d if zero == 1 else 18 / d)
        states += 2 * max(model["layer"], model["head"]) * (zero == 3)
        kept.append(states + float(flying[i]) * layers * model["kept"])
    kept[1] += 4 * s * model["words"]
    if p == 1:
        kept = kept[1:]
    return [nbytes / t for nbytes in kept], sum(parts.values()), parts


def all_layouts(cluster, model, batch) -> list[tuple]:
    """All there are, as (seconds, t, p, d, v, zero, bytes, bytes by rank, parts)."""
    n, found = cluster["gpus"], []
    for t in range(1, cluster["node"] + 1):
        if cluster["node"] % t or model["heads"] % t or n % t:
            continue
        for p in range(1, min(n // t, model["layers"]) + 1):
            d = n // t // p
            if d * p * t != n or batch % d:
                continue
            for v in range(1, model["layers"] // p + 1):
                if v > 1 and (p == 1 or batch // d % p):
                    continue
                for zero in (1, 3):
                    kept, seconds, parts = one_layout(cluster, model, batch, t, p, d, v, zero)
                    found.append((seconds, t, p, d, v, zero, max(kept), kept, parts))
    return found


def fits(cluster, one: tuple) -> bool:
    return 10 * one[6] <= 9 * cluster["memory"]


def check_layout(told, cluster, model, batch, got, fastest=True) -> None:
    """Fail unless the choice is one, fits, has its bytes and its seconds, and none is faster."""
    every = all_layouts(cluster, model, batch)
    good = sorted((one for one in every if fits(cluster, one)), key=lambda one: one[:6])
    if not good:
        expect(told, got, None)
        return
    if got is None:
        limit = f"nine tenths of {cluster['memory']:.6g}"
        expect(told, got, good[0][1:6], hint=f"it fits into {limit}: {held(good[0])}")
    if not isinstance(got, list | tuple) or len(got) != 7:
        name = f"{told}: expected (t, p, d, v, zero, bytes, seconds), got {got!r}"
        raise WrongAnswer(name[:1000], "")
    one = next((one for one in every if one[1:6] == tuple(got[:5])), None)
    if one is None:
        expect(f"{told}: (t, p, d, v, zero)", tuple(got[:5]), good[0][1:6], hint="it is no layout")
    name = "{}: t={}, p={}, d={}, v={}, zero={}".format(told, *one[1:6])
    hint = held(one) if len(one[7]) > 1 else None
    expect(f"{name}: bytes on the fullest rank", got[5], one[6], 1e-9 * one[6], hint)
    if not fits(cluster, one):
        raise WrongAnswer(f"{name}: expected to fit, got {got[5]:.6g} bytes")
    if fastest:
        expect(f"{name}: seconds", got[6], one[0], 1e-9 * one[0], f"they are {made_of(one)}")
        if one[0] > good[0][0] * (1 + 1e-9):
            hint = f"yours takes {one[0]:.6g} s; that one fits, too, and takes {made_of(good[0])}"
            expect(f"{told}: (t, p, d, v, zero)", tuple(got[:5]), good[0][1:6], hint=hint)


def held(one) -> str:
    """The bytes of the ranks that may be fullest, in words."""
    if len(one[7]) == 1:
        return f"a rank has {one[6]:.6g} bytes"
    return "the first rank has {:.6g} bytes, and the last {:.6g}".format(*one[7])


def made_of(one) -> str:
    """The parts of a step in words."""
    parts = "; ".join(f"{key}: {x:.6g}" for key, x in one[8].items() if x)
    return f"{one[0]:.6g} s ({parts})"


# --- in the grader's process: a rhythm ------------------------------------------------------------


def lost(run, hours, share, costs, a, k) -> float:
    """The share of time that is lost."""
    gpus, step = run
    M, between = hours * 3600 / gpus, a * step
    kept = costs["copy"] / between + costs["write"] / (between * k)
    near, far = costs["near"] + between / 2, costs["far"] + k * between / 2
    return kept + (share * near + (1 - share) * far) / M


def best_rhythm(run, hours, share, costs) -> tuple[float, int, int]:
    """(lost, a, k): for each k the a at which the sum, which falls and then rises, is least."""
    best = []
    for k in range(1, 101):
        low, high = 1, 2
        while lost(run, hours, share, costs, high, k) < lost(run, hours, share, costs, high - 1, k):
            low, high = high, 2 * high
        while low < high:
            middle = (low + high) // 2
            now, after = (lost(run, hours, share, costs, a, k) for a in (middle, middle + 1))
            low, high = (middle + 1, high) if after < now else (low, middle)
        best.append((lost(run, hours, share, costs, low, k), low, k))
    return min(best)


def check_rhythm(runs, hours, share, costs, got) -> None:
    """Fail unless the rhythm makes as many steps as it says, and none makes more."""
    told = f"rhythm({runs}, {hours:g}, {share:g}, {costs})"
    every = [(i, best_rhythm(run, hours, share, costs)) for i, run in enumerate(runs)]
    steps = [((1 - one[0]) * 86400 / runs[i][1], i, *one[1:]) for i, one in every]
    most, i, a, k = max(steps)
    right = (i, a, k, most) if most > 0 else None
    if got is None or right is None:
        expect(told, got, right)
        return
    whole = lambda x: isinstance(x, int) and not isinstance(x, bool)  # noqa: E731
    fits = isinstance(got, list | tuple) and len(got) == 4 and all(map(whole, got[:3]))
    if not fits or not 0 <= got[0] < len(runs) or min(got[1:3]) < 1:
        raise WrongAnswer(f"{told}: expected {right}, got {got!r}"[:1000], "")
    j, a, k, said = got
    makes = (1 - lost(runs[j], hours, share, costs, a, k)) * 86400 / runs[j][1]
    expect(f"{told}: steps of a day in run {j}, {a=}, {k=}", said, makes, 1e-9 * most)
    if makes < most * (1 - 1e-9):
        mine, best = f"{makes:.6g}", f"{most:.6g}"
        if mine == best:  # they differ in digits that are not shown
            mine, best = f"{makes!r}", f"{most!r}"
        hint = f"run {j} makes {mine} steps a day, and another rhythm or run makes {best}"
        expect(f"{told}: (run, a, k)", (j, a, k), right[:3], hint=hint)
