"""What runs for this topic's tests beside the answers: the right numbers, and the counting."""

from importlib.util import find_spec
from itertools import accumulate
from math import ceil
from pathlib import Path

from weft.grade import WrongAnswer, at_most, expect_each

RANKS = Path(__file__).with_name("ranks.py")
NUMBER = 8  # bytes: what ranks send is float64
GIVEN = "what was given"


def warm() -> None:
    """Import what is slow to import; without torch and Triton only `hybrid` can run."""
    if find_spec("torch") is None:
        return
    import torch

    import weft.run.world
    from weft.meter import live

    torch.set_num_threads(1)
    with live(), counted():
        torch.eye(2) @ torch.eye(2)  # what a meter imports when it begins to count
    if find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


# --- inputs and what is right ---------------------------------------------------------------------


def dice(seed: int):
    """A generator of random numbers."""
    import torch

    return torch.Generator().manual_seed(seed)


def tokens(T: int, K: int, V: int, seed: int) -> dict:
    """q, k and v of T tokens, in float64; each key has length 1."""
    import torch

    drawn = dice(seed)
    q, k, v = (torch.randn(T, wide, generator=drawn, dtype=torch.float64) for wide in (K, K, V))
    return {"q": q, "k": torch.nn.functional.normalize(k, dim=1), "v": v}


def gates(shape: tuple, strong: bool, seed: int):
    """Log decays; strong ones are among the others, alone and in rows, and leave nothing."""
    import torch

    drawn = dice(seed)
    g = -torch.rand(shape, generator=drawn, dtype=torch.float64).square()
    if strong:
        closed = torch.rand(shape, generator=drawn) < 0.1
        closed[: shape[0] // 3] |= torch.rand(shape[1:], generator=drawn) < 0.5
        g = torch.where(closed, -690.0, g)
    return g


def wrong(name: str, got, right, within: float = 1e-9) -> tuple | None:
    """Where a tensor is not what it has to be: what, expected, got; None if it is right."""
    import torch

    form = lambda x: f"{list(x.shape)} of {str(x.dtype).removeprefix('torch.')}"  # noqa: E731
    if not isinstance(got, torch.Tensor) or got.shape != right.shape or got.dtype != right.dtype:
        return name, form(right), form(got) if isinstance(got, torch.Tensor) else repr(got)[:80]
    off = ~((got - right).abs() <= within * (1 + right.abs()))
    for place in off.nonzero().tolist()[:1]:
        index = ", ".join(map(str, place))
        return f"{name}[{index}]", right[tuple(place)].item(), got[tuple(place)].item()
    return None


def counted():
    """A context that counts torch's operations as `.operations`: what gives a view is none."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counted(TorchDispatchMode):
        operations = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.operations += not func.is_view
            return func(*args, **(kwargs or {}))

    return Counted()


# --- chunks ---------------------------------------------------------------------------------------


def packed(answers, lengths, K, V, C, strong=False, seed=0) -> dict:
    """Run `packed`: what is wrong, the bytes alive at most, and the operations."""
    import torch

    from weft.meter import live

    T = sum(lengths)
    x = tokens(T, K, V, seed) | {"g": gates((T,), strong, seed + 1)}
    x["S"] = torch.randn(K, V, generator=dice(seed + 2), dtype=torch.float64)
    before = {name: tensor.clone() for name, tensor in x.items()}
    begin, S, right = [0, *accumulate(lengths[:-1])], x["S"], []
    for t in range(T):
        S = (0.0 if t in begin[1:] else x["g"][t].exp() * S) + torch.outer(x["k"][t], x["v"][t])
        right.append(x["q"][t] @ S)
    with live() as alive, counted() as count:
        got = answers.packed(*x.values(), begin, C)
    report = {"alive": alive.peak, "operations": count.operations}
    if not isinstance(got, list | tuple) or len(got) != 2:
        return report | {"wrong": ("what is returned", "a pair (o, S)", repr(got)[:80])}
    found = wrong("o", got[0], torch.stack(right)) or wrong("S", got[1], S)
    for name, tensor in x.items():
        if not torch.equal(tensor, before[name]):
            found = found or (GIVEN, f"{name} as it was", "others: it was written to")
    return report | {"wrong": found}


def kda(answers, T, K, V, C, strong=False, seed=0) -> dict:
    """Run `kda`, as `packed`."""
    import torch

    from weft.meter import live

    x = tokens(T, K, V, seed) | {"g": gates((T, K), strong, seed + 1)}
    x["beta"] = 2 * torch.rand(T, generator=dice(seed + 2), dtype=torch.float64)
    S, right = x["v"].new_zeros(K, V), []
    for q, k, v, g, beta in zip(*x.values(), strict=True):
        S = g.exp()[:, None] * S
        S = S + torch.outer(k, beta * (v - k @ S))
        right.append(q @ S)
    with live() as alive, counted() as count:
        got = answers.kda(*x.values(), C)
    found = wrong("o", got, torch.stack(right))
    return {"wrong": found, "alive": alive.peak, "operations": count.operations}


# --- a kernel -------------------------------------------------------------------------------------


def replay(answers, settled, count, N, K, V, TILE_V, seed=0) -> dict:
    """Run `replay` under Triton's interpreter: what is wrong, and each element's loads and stores.

    `settled` and `count` have a number for each sequence.
    """
    import torch

    from weft.grade import kernel

    B, drawn = len(count), dice(seed)
    wide = {"S": (K, V), "q": (N, K), "k": (N, K), "v": (N, V), "g": (N,), "beta": (N,)}
    named = {name: torch.randn(B, *shape, generator=drawn) for name, shape in wide.items()}
    named["k"] = torch.nn.functional.normalize(named["k"], dim=2)
    named["g"], named["beta"] = -named["g"].square(), named["beta"].sigmoid() * 2
    named["settled"] = torch.tensor(settled, dtype=torch.int32)
    named["count"] = torch.tensor(count, dtype=torch.int32)
    named["o"] = torch.full((B, N, V), float("nan"))
    x = {name: tensor.double() for name, tensor in named.items()}
    S, right = x["S"].clone(), {}
    for b in range(B):
        state = x["S"][b]
        for t in range(count[b]):
            state, k = x["g"][b, t].exp() * state, x["k"][b, t]
            state = state + torch.outer(k, x["beta"][b, t] * (x["v"][b, t] - k @ state))
            if t >= settled[b]:
                right[b, t] = x["q"][b, t] @ state
            else:
                S[b] = state
    rest = (N, K, V, 1 << (K - 1).bit_length(), TILE_V)
    counts = kernel.run(answers, "replay", (B, ceil(V / TILE_V)), named, rest)
    found = wrong("S", named["S"].double(), S, 1e-4)
    for (b, t), o in right.items():
        found = found or wrong(f"o[{b}, {t}]", named["o"][b, t].double(), o, 1e-4)
    return {"wrong": found} | counts.moved


# --- in the grader's process ----------------------------------------------------------------------


def check(case: str, report: dict, **hints: str) -> None:
    """Fail with the first thing that is wrong, expected beside got; `hints` are by tensor."""
    if report["wrong"] is not None:
        name, *both = report["wrong"]
        expected, got = (f"{x:.9g}" if isinstance(x, float) else x for x in both)
        hint = hints.get(name.partition("[")[0])
        if name == GIVEN:
            hint = "make a tensor of your own before you change one in place"
        raise WrongAnswer(f"{case}: {name}: expected {expected}, got {got}", hint)


def check_moved(case: str, report: dict, settled: list, count: list, N: int, programs: int) -> None:
    """Fail with the first element of a tensor of `replay` that is moved too often or too seldom."""
    each = list(zip(settled, count, strict=True))
    there = [[int(t < last) for t in range(N)] for _, last in each]
    drafts = [[int(first <= t < last) for t in range(N)] for first, last in each]
    times = lambda rows: [[programs * n for n in row] for row in rows]  # noqa: E731
    some = [int(first > 0) for first, _ in each]
    fewest = [int(last > 0) for _, last in each]  # nothing to do needs nothing
    loads = {name: (times(there),) * 2 for name in ("k", "g", "beta")}
    loads |= {"S": (fewest, 1), "v": (there, there), "q": (times(drafts),) * 2, "o": (0, 0)}
    loads |= {"settled": (0, programs), "count": (0, programs)}
    stores = {"S": (some, 1), "o": (drafts, drafts)}
    stores |= dict.fromkeys(("q", "k", "v", "g", "beta", "settled", "count"), (0, 0))
    for verb, limits, kind in (("reads", loads, "loads"), ("writes", stores, "stores")):
        for name, limit in limits.items():
            expect_each(f"{case}: times that it {verb} {name}", report[kind][name], *limit)


def served(layers, H, K, V, G, D, sequences, prompt, own, drafts) -> dict:
    """For each `every` what is kept and moved, counted one sequence and token after the other."""
    token = 2 * G * D * 2
    state = H * K * V * 4 + 3 * H * (K + K + V) * 2
    found = {}
    for every in range(1, layers + 2):
        full = len(range(every, layers + 1, every))
        tokens = prompt + sequences * own + sequences * (1 + drafts)
        kept = full * token * tokens + (layers - full) * state * (1 + sequences * (1 + drafts))
        one = full * token * (prompt + own + 1 + drafts) + (layers - full) * state * (2 + drafts)
        found[every] = kept, sequences * one
    return found


def on_ranks(answers, cases, seed) -> list:
    """Run `both_ways` on real ranks; what each measured, for each (lengths, K, V)."""
    from weft.grade import ranks

    ranks.written(answers, "both_ways", *[None] * 5)
    run = [(len(case[0]), told(case), *case, seed) for case in cases]
    return ranks.run(answers, RANKS, "one_rank", run)


def told(case) -> str:
    """A case of `both_ways` in words."""
    lengths, K, V = case
    many = f"{len(lengths)} rank{'' if len(lengths) == 1 else 's'}"
    return f"both_ways on {many} with {lengths} tokens, {K=}, {V=}"


ALONE = "both S and R hold the token's own write; R fades by the gate of the query, not of the key"


def check_result(case, ranks) -> None:
    """Fail with the first rank on which something is not as in a single process."""
    for r, measured in enumerate(ranks):
        if measured["wrong"]:
            hint = ALONE if len(ranks) == 1 else None
            raise WrongAnswer(f"{told(case)}: rank {r}: {measured['wrong']}", hint)


def check_sent(case, ranks) -> None:
    """Fail with the first rank that sends more than a state to each of its neighbours."""
    lengths, K, V = case
    for r, measured in enumerate(ranks):
        states = (r > 0) + (r < len(lengths) - 1)
        most = states * K * V * NUMBER
        at_most(f"{told(case)}: bytes sent by rank {r}", measured["sent"], most)


def check_rounds(case, ranks) -> None:
    """Fail if the last message comes later than a state from one end to the other."""
    last = max(measured["round"] for measured in ranks)
    at_most(f"{told(case)}: rounds until the last rank is done", last, len(ranks) - 1)
