"""Attention's backward in tiles, and attention in eight bits: one head."""

import sys
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
E4M3 = torch.float8_e4m3fn
LARGEST = torch.finfo(E4M3).max  # 448


def forward(q, k, v, cast=lambda p: p):
    """Output and log-sum-exp of each row; `cast` rounds the weights."""
    s = q @ k.T * q.shape[1] ** -0.5
    top = s.amax(1, keepdim=True)
    p = torch.exp(s - top)
    row_sum = p.sum(1, keepdim=True)
    return cast(p) @ v / row_sum, top + row_sum.log()


def tiles(x, size=32):
    return [slice(i, i + size) for i in range(0, len(x), size)]


def p_and_ds(q, k, v, do, lse, delta):
    """A tile of P, made again, and its dS: two matmuls."""
    scale = q.shape[1] ** -0.5
    p = torch.exp(q @ k.T * scale - lse)
    return p, p * (do @ v.T - delta) * scale


def one_pass(q, k, v, do, lse, delta, arrival):
    """Keys outside: a tile of them owns its dK and dV, and adds to all dQ."""
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for c in arrival:
        for r in tiles(q):
            p, ds = p_and_ds(q[r], k[c], v[c], do[r], lse[r], delta[r])
            dv[c] += p.T @ do[r]
            dk[c] += ds.T @ q[r]
            dq[r] += ds @ k[c]  # other tiles of keys add here, too
    return dq, dk, dv


def dq_alone(q, k, v, do, lse, delta, arrival):
    """Queries outside: a tile of queries owns its dQ."""
    dq = torch.zeros_like(q)
    for r in arrival:
        for c in tiles(k):
            _, ds = p_and_ds(q[r], k[c], v[c], do[r], lse[r], delta[r])
            dq[r] += ds @ k[c]
    return (dq,)


def gradients(T=160, S=224, K=64):
    q, k, v, do = (torch.randn(n, K, device=DEVICE) for n in (T, S, S, T))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    once, plain, tiled = (FlopCounterMode(display=False) for _ in range(3))
    with once:
        o, lse = forward(*leaves)
    with plain:
        wanted = torch.autograd.grad(o, leaves, do)
    delta = (do * o).sum(1, keepdim=True)
    given = [x.detach() for x in (q, k, v, do, lse, delta)]
    with tiled:
        found = one_pass(*given, tiles(k))
    near = partial(torch.allclose, atol=1e-4)
    print("dq, dk, dv are autograd's:", *map(near, found, wanted))
    for name, count in ("P kept", plain), ("P made again", tiled):
        ratio = count.get_total_flops() / once.get_total_flops()
        print(f"backward, {name}: {ratio:g} forwards")
    for run, order in (one_pass, tiles(k)), (dq_alone, tiles(q)):
        forth, back = run(*given, order), run(*given, order[::-1])
        same = map(torch.equal, forth, back)
        print(f"{run.__name__}, last tile first, same bits:", *same)


def outliers(n, width=128):
    """N(0, 1), and one number in a thousand has N(0, 100) on top."""
    x, wide = torch.randn(2, n, width)
    return (x + 10 * wide * (torch.rand(n, width) < 0.001)).to(DEVICE)


def half(x):
    return x.half().float()


def eight_bits(x, rows=None):
    """To E4M3 and back; the largest number of a block of rows becomes 448."""
    blocks = x.unflatten(0, (-1, rows or len(x)))
    scale = blocks.abs().amax((1, 2), keepdim=True) / LARGEST
    return ((blocks / scale).to(E4M3).float() * scale).flatten(0, 1)


def three_bits(x):
    """E4M3's three bits of mantissa, for numbers of any size: no scale."""
    unit = torch.exp2(x.abs().log2().floor() - 3)
    return torch.where(x == 0, x, (x / unit).round() * unit)


def lifted(p):
    """Weights from 0 to 1, as E4M3 times 256: fewer are subnormal."""
    return (p * 256).to(E4M3).float() / 256


def rotation(width=128):
    """Random, orthogonal: Hadamard's matrix, its rows with random signs."""
    matrix, two = torch.ones(1, 1), torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    while len(matrix) < width:
        matrix = torch.kron(two, matrix)
    signs = torch.randn(width, 1).sign()
    return (signs * matrix * width**-0.5).to(DEVICE)


def errors(T=256, S=8192, heads=8):
    squares = {}
    per_block = partial(eight_bits, rows=128)
    for _ in range(heads):
        plain, turn = [outliers(n) for n in (T, S, S)], rotation()
        turned = plain[0] @ turn, plain[1] @ turn, plain[2]
        truth, _ = forward(*(x.double() for x in plain))
        for name, qkv, rounded, cast in (
            ("fp16", plain, half, half),
            ("e4m3, one scale per tensor", plain, eight_bits, lifted),
            ("e4m3, one per 128 rows", plain, per_block, lifted),
            ("three bits, any size", plain, three_bits, lifted),
            ("e4m3, Q and K rotated", turned, eight_bits, lifted),
        ):
            o, _ = forward(*map(rounded, qkv), cast)
            squares.setdefault(name, []).append((o - truth).square().mean())
    for name, found in squares.items():
        print(f"{name}: RMSE {torch.stack(found).mean().sqrt():.1e}")


def accumulated(a, b, flush):
    """a @ b as Hopper adds E4M3: 32 products and the sum, cut to 14 bits.

    After `flush` products the sum goes into another one, in fp32.
    """
    outer = a.new_zeros(len(a), b.shape[1])
    for run in tiles(b, flush):
        inner = torch.zeros_like(outer)
        for part in tiles(b[run]):
            products = a[:, None, run][..., part] * b[run][part].T
            terms = torch.cat((products, inner[..., None]), -1)
            largest = terms.abs().amax(-1, keepdim=True).clamp_min(1e-30)
            unit = torch.exp2(largest.log2().floor() - 13)
            inner = ((terms / unit).trunc() * unit).sum(-1)
        outer += inner
    return outer


def sums(width=16):
    for S in 1024, 8192, 65536:
        p = lifted(torch.rand(1, S, device=DEVICE))
        v = eight_bits(torch.randn(S, width, device=DEVICE) + 1)
        exact = p.double() @ v.double()
        found = [accumulated(p, v, flush) for flush in (S, 128)]
        off, flushed = ((x - exact).norm() / exact.norm() for x in found)
        print(f"{S} keys: P V off by {off:.1%}, flushed each 128: {flushed:.2%}")


if __name__ == "__main__":
    parts = {"gradients": gradients, "errors": errors, "sums": sums}
    for name in sys.argv[1:] or parts:
        torch.manual_seed(0)
        parts[name]()
