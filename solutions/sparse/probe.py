"""What runs for this topic's tests beside the answers: pairs, designs, blocks that are read."""

import importlib.util
import os
from math import ceil, inf

from weft.grade import WrongAnswer, at_most, expect, expect_each

NAN = float("nan")


def warm() -> None:
    """Import what is slow to import; without torch and Triton the first three can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    from weft.meter import live

    torch.set_num_threads(1)
    with live():
        torch.zeros(1).add_(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


# --- keys outside ---------------------------------------------------------------------------------


class Cache:
    """Keys and values of one sequence, [T, G, K], in blocks that are counted when they are read."""

    OFFERS = ("read()",)

    def __init__(self, k, v, block: int):
        self.k, self.v, self.block = k, v, block
        self.reads = [[0] * ceil(len(k) / block) for _ in range(k.shape[1])]

    def read(self, g: int, c: int):
        """Keys and values of block c in kv head g; IndexError where there is none such."""
        if not (0 <= g < len(self.reads) and 0 <= c < len(self.reads[g])):
            raise IndexError(f"there is no block {c} in kv head {g}")
        self.reads[g][c] += 1
        own = slice(c * self.block, (c + 1) * self.block)
        return self.k[own, g].clone(), self.v[own, g].clone()


def attend(
    answers, T, H, G, K, top, block, empty=(), barred=(), hot=(), loud=1, spread=1, seed=0
) -> dict:
    """Run `attend`: where it is wrong, how often it reads each block, the bytes that were alive.

    Queries in `empty` must not choose any block. Nobody may choose those in `barred`, and everyone
    would like most to choose those in `hot`. Of blocks that are too late the scores are high.
    Queries are `loud` times as long as usual, and scores `spread` times as far apart. What is given
    has to be as it was after the call.
    """
    import torch

    from weft.meter import live

    dice = torch.Generator().manual_seed(seed)
    q = torch.randn(T, H, K, generator=dice) * loud
    k, v = (torch.randn(T, G, K, generator=dice) for _ in range(2))
    N = ceil(T / block)
    score = torch.randn(T, G, N, generator=dice)
    t = torch.arange(T)
    score[:, :, list(hot)] += 20
    score[:, :, list(barred)] = -inf
    score[list(empty)] = -inf
    score *= spread
    late = torch.arange(N) * block > t[:, None]
    mine = score.masked_fill(late[:, None], -inf).tolist()
    score += 50.0 * spread * late[:, None]
    chosen = torch.zeros(T, G, N, dtype=torch.bool)
    for i, rows in enumerate(mine):
        for g, row in enumerate(rows):
            ranked = sorted((c for c in range(N) if row[c] > -inf), key=row.__getitem__)
            chosen[i, g, ranked[max(0, len(ranked) - top) :]] = True
    sees = chosen[:, :, t // block] & (t <= t[:, None])[:, None]
    right, right_lse = _attended(q, k, v, sees)
    cache, before = Cache(k, v, block), {"q": q.clone(), "score": score.clone()}
    with live() as alive:
        got = answers.attend(q, score, cache, top, block)
    wrong = None
    if not isinstance(got, list | tuple) or len(got) != 2:
        wrong = "attend", "(o, lse)", repr(got)[:100]
    else:
        for name, x, y in (("o", got[0], right), ("lse", got[1], right_lse)):
            wrong = wrong or _differs(name, x, y, 2e-5 * (1 + loud / 10) * (1 + y.abs()))
        for name, x in (("q", q), ("score", score)):
            wrong = wrong or _differs(f"after the call, {name}", x, before[name], 0)
    return {
        "wrong": wrong,
        "reads": cache.reads,
        "chosen": chosen.any(0).int().tolist(),
        "alive": alive.peak,
    }


def _attended(q, k, v, sees):
    """Attention in float64 with all scores at hand, and its log-sum-exps; sees [T, G, T].

    Rows that see nothing are 0, and so is what flows back from them.
    """
    import torch

    R = q.shape[1] // k.shape[1]
    q = q.double()
    k, v, sees = (x.repeat_interleave(R, 1) for x in (k.double(), v.double(), sees))
    s = torch.einsum("thk,jhk->thj", q, k) * q.shape[2] ** -0.5
    high = s.detach().masked_fill(~sees, -inf).amax(-1).clamp(min=-1e9)
    p = (s - high[..., None]).masked_fill(~sees, -inf).exp()
    total = p.sum(-1)
    p = p / total.clamp(min=1.0)[..., None]
    return torch.einsum("thj,jhk->thk", p, v), high + total.log()


def _differs(name: str, got, right, within) -> tuple | None:
    """The first element that is off by more than `within`: its name, expected, got."""
    import torch

    form = lambda x: f"{list(x.shape)} of {x.dtype}".replace("torch.", "")  # noqa: E731
    if not isinstance(got, torch.Tensor) or got.shape != right.shape or got.dtype != torch.float32:
        shown = form(got) if isinstance(got, torch.Tensor) else repr(got)
        return name, form(right.float()), shown
    off = ~((got.double() - right).abs() <= within) & (got != right)
    for place in off.nonzero().tolist()[:1]:
        index = ", ".join(map(str, place))
        return f"{name}[{index}]", right[tuple(place)].item(), got[tuple(place)].item()
    return None


# --- a kernel -------------------------------------------------------------------------------------


def columns(answers, T, H, G, K, BLOCK, lists, TILE=16, loud=1, seed=0) -> dict:
    """Run `columns` under Triton's interpreter: where it is wrong, what it loads and stores.

    lists[g][c] are the queries that chose block c in kv head g, too early ones among them. Queries
    are `loud` times as long as usual, and gradients may be off by as many times as much.
    """
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    N, WIDTH = ceil(T / BLOCK), max(16, 1 << (K - 1).bit_length())
    given = [torch.randn(T, heads, K, generator=dice) for heads in (H, G, G, H)]
    given[0] *= loud
    q, k, v, do = (x.double().requires_grad_() for x in given)
    t, sees = torch.arange(T), torch.zeros(T, G, T, dtype=torch.bool)
    for g, row in enumerate(lists):
        for c, queries in enumerate(row):
            sees[queries, g, c * BLOCK : (c + 1) * BLOCK] = True
    sees &= (t <= t[:, None])[:, None]
    o, lse = _attended(q, k, v, sees)
    right = torch.autograd.grad(o, [k, v], do)
    delta = (do * o).sum(-1)
    flat = [i for row in lists for queries in row for i in queries]
    starts = [0]
    for row in lists:
        for queries in row:
            starts.append(starts[-1] + len(queries))
    named = dict(zip(("q", "k", "v", "do"), given, strict=True))
    named |= {"lse": lse.detach().float(), "delta": delta.detach().float()}
    named["starts"] = torch.tensor(starts, dtype=torch.int32)
    named["queries"] = torch.tensor(flat, dtype=torch.int32)
    named |= {name: torch.full((T, G, K), NAN) for name in ("dk", "dv")}
    numbers = T, H, K, K**-0.5, BLOCK, TILE, WIDTH
    counts = kernel.run(answers, "columns", (N, G), named, numbers)
    wrong = None
    for name, x in zip(("dk", "dv"), right, strict=True):
        wrong = wrong or _differs(name, named[name], x, 1e-4 * loud * (1 + x.abs()))
    return {"wrong": wrong} | counts.moved


# --- in the grader's process ----------------------------------------------------------------------


def counted(case: tuple) -> tuple[int, int]:
    """The pairs and tiles that `tally` should give, each pair looked at."""
    T, w, marked, rows, columns = case
    known = set(marked)
    seen = [(i, j) for i in range(T) for j in range(i + 1) if i - j < w or i in known or j in known]
    return len(seen), len({(i // rows, j // columns) for i, j in seen})


def check_tally(case: tuple, got, right: tuple, parts: int = 2) -> None:
    """Fail unless the pairs, and with two parts the tiles as well, are right."""
    T, w, marked, rows, columns = case
    shown = list(marked) if len(marked) <= 20 else f"{len(marked)} positions"
    told = f"tally({T=}, {w=}, marked={shown}, {rows=}, {columns=})"
    if not isinstance(got, list | tuple) or len(got) != 2:
        raise WrongAnswer(f"{told}: expected (pairs, tiles), got {got!r}"[:500], "")
    for name, *one in list(zip(("pairs", "tiles"), got, right, strict=True))[:parts]:
        expect(f"{told}: {name}", *one)


def check_heard(case: tuple, got, right: list[int]) -> None:
    """Fail with the first token that is missing, or that is not heard."""
    T, layers, token = case
    told = f"heard({T=}, {layers=}, {token=})"
    if not isinstance(got, list | tuple):
        raise WrongAnswer(f"{told}: expected a list, got {got!r}"[:500], "")
    for i in sorted(set(right) ^ set(got)):
        raise WrongAnswer(f"{told}: expected {'' if i in right else 'no '}{i}, got {got}"[:500])
    expect(told, list(got), right)


def check_hybrid(told: str, case: tuple, got, parts: int = 4) -> None:
    """Fail unless the first so many of p, w, bytes and seconds are right.

    For another design than the right one, what it keeps and takes is told as well.
    """
    right = best_hybrid(*case)
    if got is not None and (not isinstance(got, list | tuple) or len(got) != 4):
        raise WrongAnswer(f"{told}: expected (p, w, bytes, seconds), got {got!r}"[:500], "")
    if got is not None and tuple(got[:2]) != (right or ())[:2]:
        p, w = got[:2]
        if type(p) is type(w) is int and p > 0 and w > 0:
            model, _, rate, chats, prompt, _ = case
            kept, took = told_design(model, rate, chats, prompt, p, w)
            told += f" (p={p} with w={w} keeps {kept} bytes and takes {took:.9g} seconds)"
    if got is None or right is None:
        expect(told, got, right)
        return
    names, within = ("p", "w", "bytes that all chats keep", "seconds"), (0, 0, 0, 1e-9 * right[3])
    for name, *one in list(zip(names, got, right, within, strict=True))[:parts]:
        expect(f"{told}: {name}", *one)


def best_hybrid(model, room, rate, chats, prompt, seconds) -> tuple | None:
    """What `hybrid` should give, looking at every design."""
    found = []
    for p in (p for p in range(2, model["layers"] + 1) if model["layers"] % p == 0):
        for w in range(model["block"], max(prompt, *chats) + model["block"], model["block"]):
            kept, took = told_design(model, rate, chats, prompt, p, w)
            if kept <= room and took <= seconds:
                found.append((p, w, kept, took))
    return min(found, key=lambda design: (design[0], -design[1]), default=None)


def told_design(model, rate, chats, prompt, p, w) -> tuple[int, float]:
    """The bytes that chats keep in a design, and the seconds of a prompt."""
    full = [i % p == p - 1 for i in range(model["layers"])]
    tokens = sum(full) * sum(chats) + full.count(False) * sum(min(w, one) for one in chats)
    n, reach = ceil(prompt / model["block"]), ceil((w - 1) / model["block"])
    dense = n * (n + 1) / 2
    touched = dense - max(0, n - 1 - reach) * max(0, n - reach) / 2
    squares = full.count(True) * dense + full.count(False) * min(dense, model["ratio"] * touched)
    flops = squares * 4 * model["block"] ** 2 * model["heads"] * model["head"]
    return 2 * 2 * model["kv_heads"] * model["head"] * tokens, flops / rate


def check(case: str, report: dict, hint: str | None = None) -> None:
    """Fail with the first wrong element, expected beside got."""
    if report["wrong"] is not None:
        name, expected, got = report["wrong"]
        shown = (f"{x:.6g}" if isinstance(x, float) else x for x in (expected, got))
        raise WrongAnswer("{}: {}: expected {}, got {}".format(case, name, *shown), hint)


def check_reads(case: str, report: dict) -> None:
    """Right, and each block that somebody chose read once, and no other."""
    check(case, report)
    told = f"{case}: times that it reads, in each kv head, block"
    expect_each(told, report["reads"], report["chosen"], report["chosen"])


def check_alive(case: str, report: dict, most: int) -> None:
    """Right, each block read once, and at most so many bytes alive."""
    check_reads(case, report)
    few = "of one block of keys and its queries at a time: no scores of all, and no gathered keys"
    at_most(f"{case}: bytes alive", report["alive"], most, few)


def check_loads(case: str, report: dict, sizes: tuple, lists) -> None:
    """Right, each gradient stored once, and everything loaded by whom it belongs to, once."""
    check(case, report)
    T, H, G, _, BLOCK = sizes
    programs = G * len(lists[0])
    listed, needed = ([[0] * H for _ in range(T)] for _ in range(2))
    for h in range(H):
        for c, queries in enumerate(lists[h * G // H]):
            for t in queries:
                listed[t][h] += 1
                needed[t][h] += t >= c * BLOCK
    ends = [1, *[2] * (programs - 1), 1]
    loads = dict.fromkeys(("q", "do", "lse", "delta"), (needed, listed))
    loads |= dict.fromkeys(("k", "v", "queries"), (1, 1)) | {"starts": (ends, ends)}
    loads |= dict.fromkeys(("dk", "dv"), (0, 0))
    for name, (least, most) in loads.items():
        expect_each(f"{case}: times that it reads {name}", report["loads"][name], least, most)
    for name, counts in report["stores"].items():
        times = int(name in ("dk", "dv"))
        expect_each(f"{case}: times that it writes {name}", counts, times, times)
