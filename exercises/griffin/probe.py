"""What runs for this topic's tests beside the answers: tensors, ranks, and the counting."""

import importlib.util
import os
from collections import Counter
from math import ceil
from pathlib import Path

from weft.grade import WrongAnswer, at_most, expect, expect_each

RANKS = Path(__file__).with_name("ranks.py")
NAN = float("nan")


def warm() -> None:
    """Import what is slow to import; without torch and Triton only `widest` can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

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


# --- packed documents -----------------------------------------------------------------------------

DECAYS = 0.0, -1e-12, -1e-7, -1e-3, -0.5, -20.0, -1e4


def packed(answers, T, D, begins, carried, seed=0) -> dict:
    """Run `packed`: where it is wrong, its operations, and the bytes that were alive.

    `carried` says whether there is a state to begin with. Of eight channels four have one size of
    decay each, all slow; in the others there are all sizes.
    """
    import torch

    from weft.meter import live

    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(T, D, generator=dice)
    channel = torch.arange(D)
    mixed = torch.randint(len(DECAYS), (T, D), generator=dice)
    choice = torch.where(channel % 8 < 4, channel % 4, mixed)
    log_a = torch.tensor(DECAYS)[choice] * (0.5 + torch.rand(T, D, generator=dice))
    anew = torch.zeros(T, dtype=torch.bool)
    anew[[begin for begin in begins if begin < T]] = True
    # No larger than what a slow channel writes, which otherwise would be lost beside it.
    initial = torch.randn(D, generator=dice) * 1e-5 if carried else None
    right, size = _states(x, log_a, anew, initial)
    with live() as alive, _operations() as operations:
        h = answers.packed(x, log_a, anew, initial)
    wrong = _differs("h", h, right, 1e-4 * size + 1e-30)
    return {"wrong": wrong, "operations": operations.count, "alive": alive.peak}


def _states(x, log_a, anew, initial):
    """The states in float64, one after the other, and their sizes if nothing in them cancels."""
    import torch

    x, log_a = x.double(), log_a.double()
    a, room = log_a.exp(), (-torch.expm1(2 * log_a)).sqrt()
    h = torch.zeros_like(x[0]) if initial is None else initial.double()
    size, states, sizes = h.abs(), [], []
    for t in range(len(x)):
        if anew[t] or (t == 0 and initial is None):
            h, size = x[t], x[t].abs()
        else:
            h, size = a[t] * h + room[t] * x[t], a[t] * size + room[t] * x[t].abs()
        states.append(h)
        sizes.append(size)
    return torch.stack(states), torch.stack(sizes)


# --- a ring ---------------------------------------------------------------------------------------


def extend(answers, pieces, W, K, V, slope, first=0, seed=0) -> dict:
    """Run `extend` on one piece after the other: as `packed`, of the last piece, and of the ring.

    Before the first piece, whose first token is at position `first`, the ring has what came before.
    """
    import torch

    from weft.meter import live

    dice = torch.Generator().manual_seed(seed)
    S = first + sum(pieces)
    q, k, v = (torch.randn(S, width, generator=dice) for width in (K, K, V))
    right = _attended(q, k, v, W, slope)
    keys, values = torch.full((W, K), NAN), torch.full((W, V), NAN)
    for p in range(first):
        keys[p % W], values[p % W] = k[p], v[p]
    report = {"wrong": None}
    for i, T in enumerate(pieces):
        own = slice(first, first + T)
        given = [one[own].clone() for one in (q, k, v)]
        with live() as alive, _operations() as operations:
            o = answers.extend(*given, keys, values, first, slope)
        first += T
        report = {"operations": operations.count, "alive": alive.peak}
        at = f"piece {i}: " if len(pieces) > 1 else ""
        report["wrong"] = _differs(f"{at}o", o, right[own], 1e-5 * (1 + right[own].abs()))
        for name, ring, every in (("keys", keys, k), ("values", values, v)):
            held = torch.full_like(ring, NAN)
            for p in range(max(0, first - W), first):
                held[p % W] = every[p]
            found = _differs(f"{at}the ring's {name} afterwards", ring, held.double(), 0.0)
            report["wrong"] = report["wrong"] or found
        if report["wrong"]:
            break
    return report


def _attended(q, k, v, W, slope):
    """Attention over the last W positions, in float64 with all scores at hand."""
    import torch

    q, k, v = q.double(), k.double(), v.double()
    back = torch.arange(len(q))[:, None] - torch.arange(len(q))
    scores = q @ k.T * q.shape[1] ** -0.5 - slope * back
    return scores.masked_fill((back < 0) | (back >= W), float("-inf")).softmax(1) @ v


def _differs(name: str, got, right, within) -> tuple | None:
    """The first element that is off by more than `within`: its name, expected, got.

    Where the right one is NaN, anything will do.
    """
    import torch

    form = lambda x: f"{list(x.shape)} of {x.dtype}".replace("torch.", "")  # noqa: E731
    if not isinstance(got, torch.Tensor) or got.shape != right.shape or got.dtype != torch.float32:
        shown = form(got) if isinstance(got, torch.Tensor) else repr(got)
        return name, form(right.float()), shown
    off = ~((got.double() - right).abs() <= within) & ~right.isnan()
    for place in off.nonzero().tolist()[:1]:
        index = ", ".join(map(str, place))
        return f"{name}[{index}]", right[tuple(place)].item(), got[tuple(place)].item()
    return None


# --- ranks ----------------------------------------------------------------------------------------


def convolve(answers, cases, seed) -> list:
    """Run `convolve` on real ranks; what each measured for each (lengths, begins, taps, D)."""
    from weft.grade import ranks

    ranks.written(answers, "convolve", *[None] * 7)
    run = [(len(case[0]), convolved(case), *case, seed) for case in cases]
    return ranks.run(answers, RANKS, "one_rank", run)


# --- a kernel -------------------------------------------------------------------------------------


def scan_back(answers, B, T, D, BLOCK, begins=(), seed=0) -> dict:
    """Run `scan_back` under Triton's interpreter: where it is wrong, what it loads and stores.

    begins: pairs of a sequence and a token at which a document begins.
    """
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    log_a = -torch.rand(B, T, D, generator=dice, dtype=torch.float64)
    u, dh = (torch.randn(B, T, D, generator=dice, dtype=torch.float64) for _ in range(2))
    initial, dlast = (torch.randn(B, D, generator=dice, dtype=torch.float64) for _ in range(2))
    anew = torch.zeros(B, T, dtype=torch.int32)
    for b, t in begins:
        anew[b, t] = 1
    asked = [x.requires_grad_() for x in (log_a, u, initial)]
    states, h = [], initial
    for t in range(T):
        h = torch.where(anew[:, t, None] == 1, 0.0, log_a[:, t].exp() * h) + u[:, t]
        states.append(h)
    every = torch.stack(states, 1)
    right = torch.autograd.grad([every, h], asked, [dh, dlast])
    empty = torch.full((B, T, D), NAN)
    named = {"a": log_a.detach().exp(), "h": every.detach(), "dh": dh, "begins": anew}
    named |= {"initial": initial.detach(), "dlast": dlast}
    named = {name: x if x is anew else x.float() for name, x in named.items()}
    outputs = "dlog_a", "du", "dinitial"
    named |= {"dlog_a": empty, "du": empty.clone(), "dinitial": torch.full((B, D), NAN)}
    grid = B, ceil(D / BLOCK)
    counts = kernel.run(answers, "scan_back", grid, named, (T, D, BLOCK))
    wrong = None
    for name, x in zip(outputs, right, strict=True):
        wrong = wrong or _differs(name, named[name], x, 1e-5 * (1 + x.abs()))
    return {"wrong": wrong} | counts.moved


# --- in the grader's process ----------------------------------------------------------------------


def check(case: str, report: dict, hint: str | None = None) -> None:
    """Fail with the first wrong element, expected beside got."""
    if report["wrong"] is not None:
        name, expected, got = report["wrong"]
        shown = (f"{x:.6g}" if isinstance(x, float) else x for x in (expected, got))
        raise WrongAnswer("{}: {}: expected {}, got {}".format(case, name, *shown), hint)


def check_room(case: str, report: dict, operations: int, alive: int) -> None:
    """Right, in at most so many operations, with at most so many bytes alive."""
    check(case, report)
    at_most(f"{case}: operations", report["operations"], operations)
    few = "nothing may grow with the square of the tokens; what is not needed any more can go"
    at_most(f"{case}: bytes alive", report["alive"], alive, few)


def check_loads(case: str, report: dict, sizes: tuple, begins: tuple) -> None:
    """Right, each result stored once, and each element loaded by whom it belongs to, once."""
    check(case, report)
    B, T, D, BLOCK = sizes
    anew = [[int((b, t) in begins) for t in range(T)] for b in range(B)]
    needed = [[1 - one for one in row] for row in anew]
    before = [[*row[1:], 0] for row in needed]  # h of a token is looked at by the next one
    loads = {
        "a": (needed, 1), "h": (before, 1), "dh": (1, 1), "dlast": (1, 1),
        "initial": ([row[0] for row in needed], 1), "begins": (ceil(D / BLOCK),) * 2,
        "dlog_a": (0, 0), "du": (0, 0), "dinitial": (0, 0),
    }  # fmt: skip
    for name, (least, most) in loads.items():
        expect_each(f"{case}: times that it reads {name}", report["loads"][name], least, most)
    for name, counts in report["stores"].items():
        times = int(name in ("dlog_a", "du", "dinitial"))
        expect_each(f"{case}: times that it writes {name}", counts, times, times)


def check_convolved(case, ranks) -> None:
    """Fail with the first rank whose rows are not the convolution's."""
    for r, measured in enumerate(ranks):
        if measured["wrong"]:
            raise AssertionError(f"{convolved(case)}: rank {r}: {measured['wrong']}")


def check_halo(case, ranks) -> None:
    """Fail unless each rank is sent the rows in front of its own that it sees, and no others."""
    lengths, begins, taps, D = case
    for r, measured in enumerate(ranks):
        start = sum(lengths[:r])
        document = max([begin for begin in begins if begin <= start], default=0)
        rows = min(taps - 1, start - document) if lengths[r] else 0
        told = f"{convolved(case)}: bytes that rank {r} is sent"
        expect(told, measured["received"], rows * D * 8)


def check_rounds(case, ranks) -> None:
    """Fail where a message was sent only after another had been received."""
    rounds = max(measured["rounds"] for measured in ranks)
    at_most(f"{convolved(case)}: rounds", rounds, 1)


def convolved(case) -> str:
    """A case of convolve in words."""
    lengths, begins, taps, D = case
    return f"convolve, ranks of {lengths} tokens, documents from {begins}, {taps} taps, D={D}"


def check_widest(case: str, got, right: tuple | None, parts: int = 3) -> None:
    """Fail unless the first so many of window, bytes and seconds are right."""
    if got is None or right is None:
        expect(case, got, right)
        return
    if not isinstance(got, list | tuple) or len(got) != 3:
        raise WrongAnswer(f"{case}: expected (window, bytes, seconds), got {got!r}", "")
    names = "window", "bytes", "seconds of the step"
    within = 0, 0, 1e-9 * right[2]
    for name, *one in list(zip(names, got, right, within, strict=True))[:parts]:
        expect(f"{case}: {name}", *one)


def most_window(chip: dict, model: dict, lengths: list, seconds: float) -> tuple | None:
    """What `widest` should give, window by window upwards."""
    found = None
    for window in range(128, max(lengths) + 128, 128):
        kept, step = told_window(chip, model, lengths, window)
        if kept + 2 * model["params"] <= chip["memory"] * 9 // 10 and step <= seconds:
            found = window, kept, step
    return found


def told_window(chip: dict, model: dict, lengths: list, window: int) -> tuple[int, float]:
    """The bytes that chats keep with a window, and a step's seconds."""
    from weft.plan.griffin import sequence_bytes

    layers = {"attention": model["layers"] // model["every"]}
    layers["recurrent"] = model["layers"] - layers["attention"]
    sizes = {"G": model["kv_heads"], "K": model["head"], "window": window}
    sizes |= {"width": model["width"], "taps": model["taps"]}
    kept = len(lengths) * sequence_bytes(window, **layers, **sizes).total
    moved = 0
    for length, chats in Counter(lengths).items():
        chat = sequence_bytes(length, **layers, **sizes)
        moved += chats * (chat.total + chat.recurrent)
    weights = max(2 / chip["bandwidth"], 2 * len(lengths) / chip["rate"]) * model["params"]
    return kept, weights + moved / chip["bandwidth"]
