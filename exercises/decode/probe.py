"""What runs for this topic's tests beside the answers: caches, chances, tiles, and the counting."""

import copy
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, prod

from weft.grade import WrongAnswer, expect, expect_each

NAN = float("nan")


def warm() -> None:
    """Import what is slow to import; without torch and Triton only the first three can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    torch.set_num_threads(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


# --- guesses, many times --------------------------------------------------------------------------

HALVED = 12  # times that the numbers between 0 and 1 are, to find a chance
LARGEST = 1 - 2.0**-30  # of the numbers, with which whatever can fall falls


def verify(answers, words: list[int], q: list[float], p: list[float]) -> dict:
    """How often the siblings `words` stand, by their order, and how words are distributed.

    A model without a draft follows on each of them, so that one more word says that it stood. The
    number that decides is looked for between 0 and 1, the others let those before fall.
    """
    N = len(p)
    tree = [-1, *[0] * len(words)], [words[0], *words]
    rows = [list(q)] * (1 + len(words)), [list(p), *[[1.0, *[0.0] * (N - 1)]] * len(words)]

    def run(numbers):
        got = answers.verify(
            *(list(x) for x in tree), *([*r] for r in rows), [*numbers, *[0.5] * N]
        )
        if not isinstance(got, list | tuple) or len(got) not in (1, 2):
            raise ValueError(f"expected a list of one word or two, got {got!r}"[:400])
        for x in got:
            if isinstance(x, bool) or not isinstance(x, int) or not 0 <= x < N:
                raise ValueError(f"expected words below {N}, got {got!r}"[:400])
        return got

    fallen, stand = [], []
    for word in words:
        stand.append(_below(lambda u, word=word: len(g := run([*fallen, u])) == 2 and g[0] == word))
        fallen.append(LARGEST)
        if stand[-1] == 1:
            return {"stand": stand + [0.0] * (len(words) - len(stand)), "left": [0.0] * N}
    upto = [_below(lambda u, x=x: run([*fallen, u])[0] <= x) for x in range(N)]
    return {"stand": stand, "left": [b - a for a, b in zip([0.0, *upto], upto, strict=False)]}


def _below(holds) -> float:
    """The number below which something holds, and from which on it does not."""
    if holds(LARGEST):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(HALVED):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def drawn(q: list[float], count: int) -> list[tuple[list[int], float]]:
    """All orders in which `count` different words can be drawn by q, and how likely each is."""
    found = [([], 1.0)]
    for _ in range(count):
        found = [
            ([*words, x], chance * q[x] / (1 - sum(q[w] for w in words)))
            for words, chance in found
            for x in range(len(q))
            if q[x] and x not in words
        ]
    return found


def distributed(answers, q, p, count) -> dict:
    """Over all that the draft may draw: how words are distributed, and how often which stands."""
    total, stands = [0.0] * len(p), [0.0] * count
    for words, chance in drawn(q, count):
        try:
            report = verify(answers, words, q, p)
        except ValueError as wrong:
            return {"wrong": str(wrong)}
        for i, (word, stood) in enumerate(zip(words, report["stand"], strict=True)):
            total[word] += chance * stood
            stands[i] += chance * stood
            chance *= 1 - stood
        total = [a + chance * b for a, b in zip(total, report["left"], strict=True)]
    return {"words": total, "stands": stands}


# --- a cache --------------------------------------------------------------------------------------


def exact(q, k, v, scale):
    """o and lse of each head, in float64 with all scores at hand; q [H, K], k, v [S, H, …]."""
    import torch

    k, v = k.double(), v.double()
    s = torch.einsum("hk,shk->hs", q.double(), k) * scale
    lse = s.logsumexp(1) if s.shape[1] else s.new_full((len(q),), float("-inf"))
    return torch.einsum("hs,shv->hv", (s - lse[:, None]).exp(), v), lse


def _wrong(name: str, got, right) -> tuple | None:
    """The first element that is off by more than float32 explains: its name, expected, got."""
    near = (got.double() - right).abs() <= 1e-4 * (1 + right.abs())
    off = ~(near & right.isfinite()) & (got.double() != right)  # nothing is near infinity
    for place in off.nonzero().tolist()[:1]:
        index = ", ".join(map(str, place))
        return f"{name}[{index}]", right[tuple(place)].item(), got[tuple(place)].item()
    return None


# --- tiles ----------------------------------------------------------------------------------------


def cascade(answers, lengths, shared, block, H, G, K, V, capacity, loud=2.0, seed=0) -> dict:
    """Run `cascade`: where it is wrong, and how often it moves each element.

    Later keys are larger, up to `loud` times. Blocks lie in random order among those of others.
    What belongs to nobody here is not a number, and tables end with what is no block.
    """
    import torch

    from weft.grade.tiles import Tiles

    dice = torch.Generator().manual_seed(seed)
    B, first = len(lengths), shared * block
    own = [max(0, ceil(length / block) - shared) for length in lengths]
    places = torch.randperm(shared + sum(own) + 3, generator=dice).tolist()
    front, places = places[:shared], places[shared:]
    k_cache, v_cache = (torch.full((shared + sum(own) + 3, block, G, w), NAN) for w in (K, V))
    tables, rows = [], []
    prompt = [torch.randn(first, G, w, generator=dice) for w in (K, V)]
    for length, count in zip(lengths, own, strict=True):
        mine, places = places[:count], places[count:]
        table = [*front, *mine]
        kv = [
            torch.cat([x, torch.randn(length - first, G, x.shape[2], generator=dice)])
            for x in prompt
        ]
        grown = torch.linspace(0.5, loud, max(lengths))[:length, None, None]
        kv[0] *= grown
        for x, cache in zip(kv, (k_cache, v_cache), strict=True):
            for i, at in enumerate(table):
                part = x[i * block : (i + 1) * block]
                cache[at, : len(part)] = part
        tables.append([*table, 1 << 30, -1])
        rows.append(kv)
    q, o = torch.randn(B, H, K, generator=dice), torch.full((B, H, V), NAN)
    sram = Tiles(capacity, {"q": q, "keys": k_cache, "values": v_cache, "o": o})
    right = torch.stack(
        [
            exact(q[b], *(x.repeat_interleave(H // G, 1) for x in rows[b]), K**-0.5)[0]
            for b in range(B)
        ]
    )
    with sram:
        answers.cascade(
            q, k_cache, v_cache, [list(t) for t in tables], shared, list(lengths), o, sram
        )
    there = torch.zeros(k_cache.shape[:2], dtype=torch.int64)
    for table, length in zip(tables, lengths, strict=True):
        for i in range(length):
            there[table[i // block], i % block] = 1
    counts = sram.moved | {"there": there.tolist(), "prompt": front, "lengths": list(lengths)}
    return {"wrong": _wrong("o", o, right)} | counts


# --- a kernel -------------------------------------------------------------------------------------


def latent(answers, length, each, pieces, H, C, R, GROUP, BLOCK, loud=1.0, seed=0) -> dict:
    """Run `latent` under Triton's interpreter: as `cascade`, of one sequence."""
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    needed = ceil(length / BLOCK)
    table = torch.randperm(needed + 3, generator=dice)[:needed]
    c = torch.full((needed + 3, BLOCK, C), NAN).to(torch.float8_e4m3fn)
    scales = torch.full((needed + 3, BLOCK, C // GROUP), NAN)
    r = torch.full((needed + 3, BLOCK, R), NAN)
    rows = torch.randn(length, C, generator=dice).mul(50).to(c.dtype)
    row_scales = torch.rand(length, C // GROUP, generator=dice).add(0.1).mul(0.03)
    row_r = torch.randn(length, R, generator=dice)
    row_r *= torch.linspace(0.5, loud, length)[:, None]
    there = torch.zeros(needed + 3, BLOCK, dtype=torch.int64)
    for i in range(length):
        place = table[i // BLOCK], i % BLOCK
        c[place], scales[place], r[place] = rows[i], row_scales[i], row_r[i]
        there[place] = 1
    q = torch.randn(H, C + R, generator=dice)
    o, lse = torch.full((pieces, H, C), NAN), torch.full((pieces, H), NAN)
    wide = torch.tensor([*table.tolist(), 1 << 30, -1], dtype=torch.int32)
    named = {"q": q, "latents": c, "scales": scales, "r": r, "table": wide, "o": o, "lse": lse}
    scale = (C // 2 + R) ** -0.5  # of heads that had half as many before U was absorbed
    rest = length, each, scale, H, C, R, GROUP, BLOCK
    counts = kernel.run(answers, "latent", (pieces,), named, rest)
    whole = rows.float() * row_scales.repeat_interleave(GROUP, 1)
    keys = torch.cat([whole, row_r], 1)
    wrong = None
    for i in range(pieces):
        mine = slice(i * each, (i + 1) * each)
        kv = (x[mine, None].expand(-1, H, -1) for x in (keys, whole))
        right_o, right_lse = exact(q, *kv, scale)
        wrong = wrong or _wrong(f"piece {i}: o", named["o"][i], right_o)
        wrong = wrong or _wrong(f"piece {i}: lse", named["lse"][i], right_lse)
    return {"wrong": wrong, "there": there.tolist()} | counts.moved


# --- in the grader's process: prefixes ------------------------------------------------------------


def check_prefix(answers, operations, count, block, right) -> None:
    """Fail with the first operation whose number is not the right one: it ends the case."""
    operations = [list(operation) for operation in operations]
    for i in range(len(operations)):
        given, wanted = operations[: i + 1], right[: i + 1]
        got = answers.prefix(copy.deepcopy(given), count, block)
        whole = lambda x: x is None or (isinstance(x, int) and not isinstance(x, bool))  # noqa: E731
        if not isinstance(got, list | tuple) or not all(map(whole, got)):
            got = f"{got!r}"[:200]
            raise WrongAnswer(f"prefix({given}, {count=}, {block=}): expected {wanted}, got {got}")
        told = f"prefix, {count=}, {block=}: for operation {i}, {given[-1]}"
        with _told(f", after {given[:-1]}" if i else ""):
            expect(f"{told}: numbers", len(got), len(given))
            expect(told, got[-1], wanted[-1])
            expect(f"prefix, {count=}, {block=}: all numbers", list(got), wanted)


@contextmanager
def _told(rest: str) -> Iterator[None]:
    """What a case consists of, behind what is wrong: a report shows the first 600 characters."""
    try:
        yield
    except WrongAnswer as wrong:
        raise WrongAnswer(f"{wrong}{rest}", wrong.hint) from None


# --- in the grader's process: guesses -------------------------------------------------------------

NEAR = 8 / 2**HALVED


def check_words(told: str, p: list[float], report: dict) -> None:
    """Fail unless words come as often as the model wants them."""
    if "wrong" in report:
        raise WrongAnswer(f"{told}: {report['wrong']}", "")
    for x, (wanted, got) in enumerate(zip(p, report["words"], strict=True)):
        expect(f"{told}: how often word {x} comes", got, wanted, NEAR)


def check_stands(told: str, q: list[float], p: list[float], report: dict) -> None:
    """Fail unless the first guess stands as often as can be, and one of all words always.

    With a word that the draft never has, not all words can be guessed.
    """
    most = sum(min(a, b) for a, b in zip(q, p, strict=True))
    expect(f"{told}: how often the first guess stands", report["stands"][0], most, NEAR)
    if len(report["stands"]) == len(q):
        name = f"{told}: how often one of them stands, where each word is guessed"
        expect(name, sum(report["stands"]), 1.0, NEAR)


def check_walk(answers, case, right: list[int]) -> None:
    """Fail if the words that are made are not the right ones."""
    got = answers.verify(*copy.deepcopy(case))
    with _told(", for parents={}, tokens={}, q={}, p={}, uniforms={}".format(*case)):
        expect("verify: words", list(got) if isinstance(got, tuple) else got, right)


# --- in the grader's process: a draft -------------------------------------------------------------


def passed(node: dict, of: dict, t: int, B: int, T: int, context: int) -> dict[str, float]:
    """What the seconds of a pass are made of."""
    reading = 2 * of["params"] / node["bandwidth"]
    computing = 2 * of["params"] * B * T / node["rate"]
    return {
        "matmuls": max(reading, computing) / t,
        "caches": B * context * of["cache"] / node["bandwidth"] / t,
        "all-reduces": 2 * of["layers"] * node["wait"] if t > 1 else 0.0,
    }


def stepped(node, model, draft, context, t, g, B) -> tuple[float, float, float]:
    """Bytes in the memory of all t, seconds of a step, and tokens that it makes of a sequence."""
    both = [model, draft] if draft else [model]
    held = sum(2 * of["params"] + B * context * of["cache"] for of in both)
    seconds = sum(passed(node, model, t, B, g + 1, context).values())
    if draft:
        seconds += g * sum(passed(node, draft, t, B, 1, context).values())
    right = draft["right"] if draft else []
    return held, seconds, sum(prod(right[:i]) for i in range(g + 1))


def within(node, held, seconds, made, t, limit, slack=1e-9) -> bool:
    """Whether it fits into memory and limit, `slack` more or less."""
    fits = held <= 0.9 * t * node["memory"] * (1 + slack)
    return fits and seconds <= limit * made * (1 + slack)


def best_draft(node, model, drafts, context, limit) -> tuple | None:
    """The best of all there are: each batch of each, until one does not fit."""
    best = None
    for t in (2**i for i in range(node["gpus"].bit_length())):
        for one in (None, *drafts):
            for g in range(1, len(one["right"]) + 1) if one else (0,):
                for B in range(1, 1 << 20):
                    held, seconds, made = stepped(node, model, one, context, t, g, B)
                    if not within(node, held, seconds, made, t, limit, slack=-1e-9):
                        break
                    rate = B * made / seconds / t
                    if best is None or rate > best[-1]:
                        best = t, one and one["name"], g, B, rate
    return best


LARGE = 1e30  # more than anything counted here; no NaN is below it


def check_draft(node, model, drafts, context, limit, got, best=True) -> None:
    """Fail unless the choice fits, with its tokens per second, and none that fits has more."""
    with _told(f"; {node=}, {model=}, {drafts=}"):
        names = [one["name"] for one in drafts]
        told = f"draft, {context=}, {limit=}, drafts {names}"
        _check_draft(told, node, model, drafts, context, limit, got, best)


def _check_draft(told, node, model, drafts, context, limit, got, best) -> None:
    right = best_draft(node, model, drafts, context, limit)
    if got is None or right is None:
        expect(told, got, right)
        return
    names = {one["name"]: one for one in drafts} | {None: None}
    form = isinstance(got, list | tuple) and len(got) == 5
    if form:
        t, name, g, B, rate = got
        numbers = (x for x in (t, g, B))
        form = all(isinstance(x, int) and not isinstance(x, bool) for x in numbers)
        form = form and (name is None or isinstance(name, str)) and name in names
        form = form and isinstance(rate, int | float) and abs(rate) < LARGE and abs(B) < LARGE
    if not form:
        raise WrongAnswer(
            f"{told}: expected (t, a draft's name or None, guesses, batch, tokens per second), got"
            f" {got!r}"[:2000],
            "",
        )
    one = names[name]
    most = len(one["right"]) if one else 0
    if t not in [2**i for i in range(node["gpus"].bit_length())] or B < 1:
        raise WrongAnswer(f"{told}: got {t=} and {B=}: t is a power of two, and B 1 or more", "")
    if g not in (range(1, most + 1) if one else (0,)):
        some = f"{name} makes 1 to {most} guesses" if one else "without a draft there are 0 guesses"
        raise WrongAnswer(f"{told}: {some}, got {g}", "")
    held, seconds, made = stepped(node, model, one, context, t, g, B)
    choice = f"{told}: t={t}, {name}, {g} guesses, {B} sequences"
    if not within(node, held, seconds, made, t, limit):
        room = f"{held:.4g} bytes, of {0.9 * t * node['memory']:.4g} that can be used"
        pace = f"{seconds / made:.5g} s for a token of each, of {limit:g}"
        raise WrongAnswer(f"{choice}: does not fit: {room}; {pace}")
    expect(f"{choice}: tokens per second of a GPU", rate, B * made / seconds / t, 1e-9 * rate)
    if best and rate < right[-1] * (1 - 1e-9):
        raise WrongAnswer(
            f"{choice}: expected the most tokens per second of a GPU, {right[-1]:.6g}, got"
            f" {rate:.6g}"
        )


# --- in the grader's process: what is counted -----------------------------------------------------


def check(case: str, report: dict) -> None:
    """Fail with the first wrong element, expected beside got."""
    if report["wrong"] is not None:
        name, expected, got = report["wrong"]
        raise AssertionError(f"{case}: {name}: expected {expected:g}, got {got:g}")


def check_cascade(case: str, report: dict) -> None:
    """Every token once, for all heads and sequences that use it, and nothing of others."""
    for name in ("keys", "values"):
        for block, (slots, counted) in enumerate(
            zip(report["there"], report["loads"][name], strict=True)
        ):
            whose = "of all" if block in report["prompt"] else "of one sequence or none"
            told = f"{case}: times that it reads {name} {whose}, block {block}"
            expect_each(told, counted, slots, slots)
    asked = [int(length > 0) for length in report["lengths"]]  # others may be read or left out
    expect_each(f"{case}: times that it reads q", report["loads"]["q"], asked, 1)
    for name, times in (("o", 1), ("q", 0), ("keys", 0), ("values", 0)):
        counted = report["stores"][name]
        expect_each(f"{case}: times that it writes {name}", counted, times, times)
    expect_each(f"{case}: times that it reads o", report["loads"]["o"], 0, 0)


def check_latent(case: str, report: dict, length: int, each: int, pieces: int, BLOCK: int) -> None:
    """Every number of a token and every block's number once, and the query in each program."""
    table = [int(i < ceil(length / BLOCK)) for i in range(len(report["loads"]["table"]))]
    used = sum(i * each < length for i in range(pieces))  # others need no query, but may load it
    there = report["there"]
    for name, least, most in (
        ("latents", there, there),
        ("scales", there, there),
        ("r", there, there),
        ("table", table, table),
        ("q", used, pieces),
        ("o", 0, 0),
        ("lse", 0, 0),
    ):
        expect_each(f"{case}: times that it reads {name}", report["loads"][name], least, most)
    for name, counted in report["stores"].items():
        times = int(name in ("o", "lse"))
        expect_each(f"{case}: times that it writes {name}", counted, times, times)
