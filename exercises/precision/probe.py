"""What runs for this topic's tests beside the answers: numbers, kernels, and the counting."""

import importlib.util
import os
from math import ceil, inf

from weft.grade import WrongAnswer, expect_each

NAN = float("nan")


def warm() -> None:
    """Import what is slow to import; without torch and Triton only `encode` and `walk` can run."""
    # The interpreter counts what a kernel loads; it has to be asked for before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    torch.set_num_threads(1)
    if importlib.util.find_spec("triton"):
        import weft.grade.kernel
        import weft.kernels  # noqa: F401


def encoded(answers, numbers: list[float], exponent: int, fraction: int) -> list:
    """The bits of many numbers in one call."""
    return [answers.encode(x, exponent, fraction) for x in numbers]


# --- kernels --------------------------------------------------------------------------------------


def nudge(answers, n, BLOCK, seed=0, kind="any") -> dict:
    """Run `nudge`: where it is wrong, and how often it loads and stores each number.

    The numbers are of a `kind`: any, exact (of bf16), or odd.
    """
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=dice) * 2.0 ** torch.randint(-20, 20, (n,), generator=dice)
    if kind == "exact":
        x = x.bfloat16().float()
    if kind == "odd":
        bits = torch.tensor([0x7FFFFFFF, 0x7F800001, -1, 0x7F800000, -0x800000, 1])
        x = bits.to(torch.int32).repeat(ceil(n / 6))[:n].view(torch.float32)
    random = torch.randint(0, 65536, (n,), generator=dice, dtype=torch.int32)
    if n > 1:
        random[:2] = torch.tensor([0, 65535])
    wide = x.view(torch.int32).long()
    right = ((wide + random) // 65536 * 65536).to(torch.int32).view(torch.float32)
    right = torch.where(x.isnan(), x, right)
    named = {"x": x, "random": random, "y": torch.full((n,), NAN, dtype=torch.bfloat16)}
    counts = kernel.run(answers, "nudge", (ceil(n / BLOCK),), named, (n, BLOCK))
    return {"wrong": _wrong("y", named["y"], right.double(), 0.0, x)} | counts.moved


def adam(answers, n, BLOCK, found=0, scale=1.0, seed=0, small=False, step=4) -> dict:
    """Run `adam`: as `nudge`."""
    import torch

    from weft.grade import kernel

    dice = torch.Generator().manual_seed(seed)
    master, mean, square = (torch.randn(n, generator=dice) for _ in range(3))
    gradient = torch.randn(n, generator=dice)
    gradient = (gradient * (1e-3 if small else 1.0)).half()
    if small:
        mean, square = mean * 0, square * 0
    square = square.square()
    # Where gradients are small, eps has to be; else it is large enough to be seen in the masters.
    lr, eps = (2.0**-11, 2.0**-40) if small else (2.0**-3, 2.0**-7)
    beta1, beta2 = 0.9, 0.99
    rise1, rise2 = 1 - beta1**step, 1 - beta2**step
    named = {
        "weight": master.bfloat16(), "gradient": gradient, "master": master, "mean": mean,
        "square": square, "found": torch.tensor([found], dtype=torch.int32),
    }  # fmt: skip
    right = {name: x.double() for name, x in named.items()}
    sizes = {name: x.abs() for name, x in right.items()}  # of what is added, which may cancel
    if not found:
        g, m, v = right["gradient"] / scale, right["mean"], right["square"]
        right["mean"] = beta1 * m + (1 - beta1) * g
        right["square"] = beta2 * v + (1 - beta2) * g * g
        step_size = lr * right["mean"] / rise1 / ((right["square"] / rise2).sqrt() + eps)
        right["master"] = right["master"] - step_size
        sizes["mean"] = beta1 * m.abs() + (1 - beta1) * g.abs()
        sizes["square"] = right["square"]
        growth = sizes["mean"] / right["mean"].abs().clamp_min(1e-30)
        sizes["master"] = sizes["master"] + step_size.abs() * growth
    rest = (n, scale, lr, beta1, beta2, rise1, rise2, eps, BLOCK)
    counts = kernel.run(answers, "adam", (ceil(n / BLOCK),), named, rest)
    wrong = None
    for name in ("mean", "square", "master"):
        wrong = wrong or _wrong(name, named[name], right[name], 2e-6 * sizes[name])
    wrong = wrong or _wrong("weight", named["weight"], named["master"].bfloat16().double(), 0.0)
    return {"wrong": wrong} | counts.moved


def _wrong(name: str, got, right, within, x=None) -> tuple | None:
    """The first element that is off by more than `within`: its name, expected, got."""
    got = got.double()
    same = (got == right) | (got.isnan() & right.isnan())
    off = ~((got - right).abs() <= within) & ~same
    for i in off.nonzero().flatten().tolist()[:1]:
        of = f" of {x[i].item():g}" if x is not None else ""
        return f"{name}[{i}]{of}", right[i].item(), got[i].item()
    return None


# --- in the grader's process ----------------------------------------------------------------------

# What a number is, what it should be and what it came to be: the first that holds gives the hint.
HINTS = (
    (lambda x, *_: x != x, "a NaN equals nothing, itself included: isnan tells, before the rest"),
    (lambda x, *_: x in (inf, -inf), "infinity has all exponent bits set, and no fraction"),
    (lambda x, *_: x == 0, "-0.0 < 0 is False: copysign tells its sign"),
    (
        lambda x, right, got, format: abs(x) < format.min_normal,
        "below the smallest normal number the spacing stays what it is there",
    ),
    (
        lambda x, right, got, format: abs(x) > format.max,
        "half a spacing beyond the largest number rounds to the even one, which is infinity",
    ),
    (
        lambda x, right, got, format: isinstance(got, int) and abs(right - got) == 1,
        "round once, from x itself, to the nearest; round() takes the even one of two as near",
    ),
)


def check(case: str, report: dict) -> None:
    """Fail with the first wrong element, expected beside got."""
    if report["wrong"] is not None:
        name, expected, got = report["wrong"]
        raise AssertionError(f"{case}: {name}: expected {expected!r}, got {got!r}")


def check_moved(case: str, report: dict, loads: dict, stores: dict) -> None:
    """Fail with the first number that is loaded, or stored, more or less often than it has to be.

    `loads` and `stores` have limits for each tensor, as in weft.grade.expect_each: a pair, or one
    number where no right answer can differ.
    """
    for verb, limits, kind in (("reads", loads, "loads"), ("writes", stores, "stores")):
        for name, limit in limits.items():
            least, most = limit if isinstance(limit, tuple) else (limit, limit)
            expect_each(f"{case}: times that it {verb} {name}", report[kind][name], least, most)


def check_nudge(case: str, report: dict) -> None:
    """Right, each number read once and written once."""
    check(case, report)
    check_moved(case, report, {"x": 1, "random": 1, "y": 0}, {"x": 0, "random": 0, "y": 1})


def check_adam(case: str, report: dict, programs: int, found: int = 0) -> None:
    """Each number read once and written once; after an overflow none is written."""
    once = (0, 1) if found else 1  # it may be read before `found` is looked at
    state = dict.fromkeys(("master", "mean", "square"), once)
    loads = state | {"gradient": once, "found": programs, "weight": 0}
    stores = dict.fromkeys(("weight", *state), int(not found)) | {"gradient": 0, "found": 0}
    check_moved(case, report, loads, stores)


def same_bits(case: str, numbers, got, format) -> None:
    """Fail with the first number whose bits are not those of the format; any NaN will do."""
    for x, bits in zip(numbers, got, strict=True):
        right = format.encode(x)
        if x != x and isinstance(bits, int) and 0 <= bits < 2**format.bits:
            value = format.decode(bits)
            bits = right if value != value else bits
        if bits != right or isinstance(bits, bool):
            shown = f"{bits:#x}" if isinstance(bits, int) else repr(bits)
            sizes = f"{format.exponent}, {format.fraction}"
            text = f"{case}: encode({x!r}, {sizes}): expected {right:#x}, got {shown}"
            hint = next((said for of, said in HINTS if of(x, right, bits, format)), None)
            raise WrongAnswer(text, hint)
