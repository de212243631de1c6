"""What runs for this topic's tests beside the answers: tensors, meters, and what is right."""

import importlib.util
import os

from weft.grade import expect_each

NAN = float("nan")


def warm() -> None:
    """Import what is slow to import; without torch and Triton only `crossing` can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch
    import torch.fx.experimental.symbolic_shapes  # which autograd imports under a meter

    import weft.meter

    torch.set_num_threads(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


def _wrong(name: str, got, right, share: float, kind: str = "float64") -> tuple | None:
    """What is wrong with a tensor: where, expected, got. Off is what is further than a share.

    That is a share of the number itself, and as much again of the largest in its head.
    """
    import torch

    if not isinstance(got, torch.Tensor) or got.shape != right.shape:
        form = list(got.shape) if isinstance(got, torch.Tensor) else type(got).__name__
        return name, f"a tensor of {list(right.shape)}", f"{form}"
    if str(got.dtype) != f"torch.{kind}":
        return name, kind, str(got.dtype).removeprefix("torch.")
    most = right.abs().flatten(1).amax(1) if right.dim() > 1 else right.abs()
    most = most.view(-1, *[1] * (right.dim() - 1))
    off = ~((got.double() - right).abs() <= share * (right.abs() + most) + 1e-12)
    for place in off.nonzero().tolist()[:1]:
        index = ", ".join(map(str, place))
        return f"{name}[{index}]", right[tuple(place)].item(), got[tuple(place)].item()
    return None


def _parts(what: str, got, names: tuple) -> tuple | None:
    """What is wrong with a result that is to be so many tensors."""
    if not isinstance(got, list | tuple) or len(got) != len(names):
        return what, f"({', '.join(names)})", f"a {type(got).__name__}"
    return None


def _first(pairs, share: float) -> tuple | None:
    return next((wrong for pair in pairs if (wrong := _wrong(*pair, share))), None)


# --- a weighted mean ------------------------------------------------------------------------------


def averaged(answers, lengths, seen, logs, K, V, loud=1.0, seed=0) -> dict:
    """Run `averaged` on pieces of a sequence, one after the other: where it is wrong."""
    import torch

    dice = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(*shape, generator=dice) * loud

    H = len(logs)
    log = torch.tensor(logs).view(H, 1, 1)
    mean = (drawn(H, K, V) * loud * (seen > 0)).half()
    for n in lengths:
        q, k, v = drawn(H, n, K) / loud, drawn(H, n, K), drawn(H, n, V)
        right_o, right_mean = _mean_after(q, k, v, log, mean, seen)
        got = answers.averaged(q, k, v, log, mean, seen)
        where = f"after {seen} tokens, {n} more: "
        wrong = _parts(f"{where}what comes", got, ("o", "mean"))
        wrong = wrong or _wrong(f"{where}o", got[0], right_o, 1e-4, "float32")
        wrong = wrong or _wrong(f"{where}mean", got[1], right_mean, 1e-3, "float16")
        if wrong:
            return {"wrong": wrong}
        mean, seen = got[1], seen + n
    return {"wrong": None}


def _mean_after(q, k, v, log, mean, seen: int):
    """o and the mean, token by token in float64; q, k [H, n, K], v [H, n, V]."""
    import torch

    log, mean = log.double(), mean.double()
    o = []
    for t in range(q.shape[1]):
        past, now = _sum(log, seen + t), _sum(log, seen + t + 1)
        write = k[:, t, :, None].double() * v[:, t, None, :].double()
        mean = (log.exp() * past * mean + write) / now
        o.append(q[:, t, None].double() @ mean)
    return torch.cat(o, 1), mean


def _sum(log, tokens: int):
    """1 + decay + ... over so many tokens."""
    import torch

    return torch.where(log == 0, float(tokens), torch.expm1(tokens * log) / torch.expm1(log))


# --- a state that turns ---------------------------------------------------------------------------


def turning(answers, H, pieces, K, V, chunk, before=5, seed=0) -> dict:
    """Run `turning` on a sequence in pieces, after so many tokens: what is wrong, its bytes."""
    import torch

    from weft.meter import live

    dice = torch.Generator().manual_seed(seed)
    T = before + sum(pieces)
    q, k, v = (torch.randn(H, T, n, generator=dice, dtype=torch.float64) for n in (K, K, V))
    decay = 1 - 2.0 ** (-3 - torch.arange(H, dtype=torch.float64)).view(H, 1, 1)
    speeds = 10000 ** -torch.linspace(0, 1, K // 2, dtype=torch.float64)
    distance = (torch.arange(T)[:, None] - torch.arange(T)).clamp(min=0)
    right = (_turn(q, speeds) @ _turn(k, speeds).mT * (decay**distance).tril()) @ v

    def state(end):
        fades = decay ** (end - 1 - torch.arange(end)[:, None])
        return (fades * _turn(k[:, :end], speeds, 1 - end)).mT @ v[:, :end]

    S, done, peak, bytes_written = state(before), before, 0, 0
    for n in pieces:
        rows = slice(done, done + n)
        given = S.clone()
        with _written() as wrote, live() as alive:
            got = answers.turning(
                q[:, rows].clone(), k[:, rows].clone(), v[:, rows].clone(),
                decay.clone(), speeds.clone(), S, chunk,
            )  # fmt: skip
        where = f"{n} tokens after {done - before}: "
        wrong = _parts(f"{where}what comes", got, ("o", "S")) or _first(
            [(f"{where}o", got[0], right[:, rows]), (f"{where}the state", got[1], state(done + n))],
            2e-5,
        )
        if wrong is None and not torch.equal(S, given):
            wrong = f"{where}the state that was given", "as it was", "changed"
        peak, bytes_written = max(peak, alive.peak), bytes_written + wrote.bytes
        if wrong:
            break
        S, done = got[1], done + n
    return {"wrong": wrong, "alive": peak, "written": bytes_written}


def _turn(x, speeds, first: int = 0):
    """As the page's `rotate`, with these speeds."""
    import torch

    angles = torch.arange(first, first + x.shape[-2])[:, None] * speeds
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.exp(1j * angles)).flatten(-2)


def _written():
    """A meter of the bytes of all results that operations write, new ones and those in place."""
    from weft.meter.mode import Mode
    from weft.meter.storage import storage_of, tensors

    class Written(Mode):
        bytes = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            held = {storage_of(x)._cdata for x in tensors(args, kwargs or {})}
            result = func(*args, **(kwargs or {}))
            for x in tensors(result):
                if func._schema.is_mutable or storage_of(x)._cdata not in held:
                    self.bytes += x.numel() * x.element_size()
            return result

    return Written()


# --- gradients ------------------------------------------------------------------------------------


def backward(answers, H, T, K, V, chunk, state=True, seed=0) -> dict:
    """Run `backward`: what is wrong with each gradient by its name, and what it kept alive."""
    import torch

    from weft.meter import live

    dice = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(*shape, generator=dice, dtype=torch.float64)

    q, k, v, do = drawn(H, T, K), drawn(H, T, K), drawn(H, T, V), drawn(H, T, V)
    S, d_last = drawn(H, K, V) * state, drawn(H, K, V) * state
    log = torch.log1p(-(2.0 ** (-3 - torch.arange(H, dtype=torch.float64)))).view(H, 1, 1)
    wanted = [x.clone().requires_grad_() for x in (q, k, v, S, log)]
    o, last = _whole(*wanted)
    right = torch.autograd.grad((o * do).sum() + (last * d_last).sum(), wanted)
    with live() as alive:
        got = answers.backward(q, k, v, do, d_last, log.exp(), S, chunk)
    names = "dq", "dk", "dv", "dS", "d_log"
    if wrong := _parts("what comes", got, names):
        return {"wrong": dict.fromkeys(names, wrong), "alive": alive.peak}
    right = (*right[:4], right[4].view(H))
    off = {n: _wrong(n, *pair, 2e-5) for n, *pair in zip(names, got, right, strict=True)}
    return {"wrong": off, "alive": alive.peak}


def _whole(q, k, v, S, log):
    """o and the last state, all at once."""
    import torch

    i = torch.arange(q.shape[1])[:, None]
    L = ((i - i.T).clamp(min=0) * log).exp().tril()
    o = (q @ k.mT * L) @ v + ((i + 1) * log).exp() * (q @ S)
    T = q.shape[1]
    return o, (T * log).exp() * S + (((T - 1 - i) * log).exp() * k).mT @ v


# --- a kernel -------------------------------------------------------------------------------------


def step(answers, counts, fresh, H, K, V, BLOCK, seed=0) -> dict:
    """Run `step` under Triton's interpreter: where it is wrong, and how often it moves what.

    `counts` are the tokens of each place, `fresh` the places whose sequence begins.
    """
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    N, rows = len(counts), sum(counts)

    def drawn(*shape):
        return torch.randn(*shape, generator=dice)

    q, k, v = drawn(rows, H, K), drawn(rows, H, K), drawn(rows, H, V)
    log, states = -(2.0 ** -torch.arange(1, H + 1)), drawn(N + 2, H, K, V)
    slots = torch.randperm(N + 2, generator=dice)[:N]
    for n in fresh:
        states[slots[n]] = NAN
    used = [slot if count else -1 for slot, count in zip(slots.tolist(), counts, strict=True)]
    begin = torch.tensor([0, *counts]).cumsum(0)
    right_o, right_states = _stepped(q, k, v, log, states, used, begin.tolist(), fresh)
    named = {"q": q, "k": k, "v": v, "log": log, "states": states}
    held = [slot if slot >= 0 else (1 << 30, -1)[n % 2] for n, slot in enumerate(used)]
    flags = [int(n in fresh) for n in range(N)]
    for name, numbers in (("slots", held), ("begin", begin.tolist()), ("fresh", flags)):
        named[name] = torch.tensor(numbers, dtype=torch.int32)
    named["o"] = torch.full((rows, H, V), NAN)
    grid = N, H, V // BLOCK
    moved = kernel.run(answers, "step", grid, named, (K, V, BLOCK)).moved
    wrong = _wrong("o", named["o"], right_o, 1e-5, "float32")
    for n, slot in enumerate(used):
        if slot >= 0 and wrong is None:
            name = f"the state of sequence {n}, in slot {slot}, at "
            wrong = _wrong(name, named["states"][slot], right_states[slot], 1e-5, "float32")
    return {"wrong": wrong, "used": used} | moved


def _stepped(q, k, v, log, states, used, begin, fresh):
    """Outputs and states, token by token in float64."""
    import torch

    o, states = torch.zeros(v.shape, dtype=torch.float64), states.double()
    decay = log.double().exp()[:, None, None]
    for n, slot in enumerate(used):
        S = torch.zeros_like(states[0]) if n in fresh else states[slot]
        for t in range(begin[n], begin[n + 1]):
            S = decay * S + k[t, :, :, None].double() * v[t, :, None, :].double()
            o[t] = (q[t, :, None].double() @ S)[:, 0]
        if slot >= 0:
            states[slot] = S
    return o, states


# --- in the grader's process ----------------------------------------------------------------------


def told(case: str, wrong: tuple | None) -> None:
    """Fail with what is wrong, expected beside got."""
    if wrong is not None:
        name, *pair = wrong
        expected, got = (f"{x:g}" if isinstance(x, float) else x for x in pair)
        raise AssertionError(f"{case}: {name}: expected {expected}, got {got}")


def check_moved(case: str, report: dict, fresh: list, across: int) -> None:
    """Fail with the first element that `step` moves less, or more often, than it may.

    `across` programs share the rows of q and k.
    """
    kept = [0] * len(report["loads"]["states"])
    made = list(kept)
    for n, slot in enumerate(report["used"]):
        if slot >= 0:
            made[slot], kept[slot] = 1, int(n not in fresh)
    loads = {"q": across, "k": across, "v": 1, "states": kept, "o": 0}
    stores = {"states": made, "o": 1, "q": 0, "k": 0, "v": 0}
    for verb, limits in (("loads", loads), ("stores", stores)):
        for name, limit in limits.items():
            expect_each(f"{case}: times that it {verb} {name}", report[verb][name], limit, limit)


def crossed(layers, full, window, kv, width, size, block, heads, K, V, state, ranks, moved):
    """The answers' `crossing`, token by token: every layer's bytes on every rank."""
    every = range(ranks)
    own = [max(1, sum(head % ranks == rank for head in range(kv))) for rank in every]
    mine = [sum(head % ranks == rank for head in range(heads)) for rank in every]
    states = max(mine) * layers * K * V * state * (2 if moved else 1)
    each = max(own) * 2 * width * size
    ceiling = states // each + block + 2  # tokens of one layer alone that are more than enough
    for T in range(1, max(ceiling, window) + 2):
        started = T if moved else block * len(range(0, T, block))
        tokens = full * started + (layers - full) * min(T, window) + layers * moved
        if tokens * each > states:
            return T
    return None
