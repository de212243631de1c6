"""Attention's backward in tiles, and attention in eight bits."""

import sys
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
E4M3 = torch.float8_e4m3fn
LARGEST = torch.finfo(E4M3).max  # 448


def forward(q, k, v, cast=lambda p: p):
    """Output and log-sum-exp of each row; `cast` rounds the weights."""
    s = q @ k.mT * q.shape[-1] ** -0.5
    top = s.amax(-1, keepdim=True)
    p = torch.exp(s - top)
    row_sum = p.sum(-1, keepdim=True)
    return cast(p) @ v / row_sum, top + row_sum.log()


def tiles(x, size=32):
    return [slice(i, i + size) for i in range(0, len(x), size)]


def p_and_ds(q, k, v, do, lse, delta):
    """A tile of P, made again, and its dS: two matmuls."""
    scale = q.shape[1] ** -0.5
    p = torch.exp(q @ k.T * scale - lse)
    return p, p * (do @ v.T - delta) * scale


def one_pass(q, k, v, do, lse, delta, arrival):
    """Keys outside: each tile owns its dK and dV, and adds to all dQ."""
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for c in arrival:
        for r in tiles(q):
            p, ds = p_and_ds(q[r], k[c], v[c], do[r], lse[r], delta[r])
            dv[c] += p.T @ do[r]
            dk[c] += ds.T @ q[r]
            dq[r] += ds @ k[c]  # other tiles of keys add here, too
    return dq, dk, dv


def gradients(T=160, S=224, K=64):
    q, k, v, do = (torch.randn(n, K, device=DEVICE) for n in (T, S, S, T))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    with FlopCounterMode(display=False) as once:
        o, lse = forward(*leaves)
    wanted = torch.autograd.grad(o, leaves, do)
    delta = (do * o).sum(1, keepdim=True)
    given = [x.detach() for x in (q, k, v, do, lse, delta)]
    with FlopCounterMode(display=False) as tiled:
        found = one_pass(*given, tiles(k))
    near = partial(torch.allclose, atol=1e-4)
    print("dq, dk, dv are autograd's:", *map(near, found, wanted))
    ratio = tiled.get_total_flops() / once.get_total_flops()
    print(f"FLOPs of the backward: {ratio:g} forwards")
    back = one_pass(*given, tiles(k)[::-1])
    print("last keys first, same bits:", *map(torch.equal, found, back))


def outliers(*shape):
    """N(0, 1), and one number in a thousand has N(0, 100) on top."""
    x, wide = torch.randn(2, *shape)
    return (x + 10 * wide * (torch.rand(shape) < 0.001)).to(DEVICE)


def eight_bits(x, rows=None):
    """To E4M3 and back; the largest of each block of rows becomes 448."""
    blocks = x.unflatten(-2, (-1, rows or x.shape[-2]))
    scale = blocks.abs().amax((-2, -1), keepdim=True) / LARGEST
    return ((blocks / scale).to(E4M3).float() * scale).flatten(-3, -2)


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


def errors(T=256, S=8192, heads=8, width=128):
    q, k, v = (outliers(heads, n, width) for n in (T, S, S))
    truth, _ = forward(*(x.double() for x in (q, k, v)))
    plain, turn = torch.eye(width).to(DEVICE), rotation(width)
    for name, m, rounded in (
        ("one scale for all", plain, eight_bits),
        ("one for 128 rows", plain, partial(eight_bits, rows=128)),
        ("one for each row", plain, partial(eight_bits, rows=1)),
        ("none, three bits of mantissa", plain, three_bits),
        ("one for all, Q and K rotated", turn, eight_bits),
    ):
        o, _ = forward(*map(rounded, (q @ m, k @ m, v)), lifted)
        print(f"{name}: RMSE {(o - truth).square().mean().sqrt():.1e}")


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
    for mean, S in (0, 8192), (1, 1024), (1, 8192), (1, 65536):
        p = lifted(torch.rand(1, S).to(DEVICE))
        v = eight_bits(torch.randn(S, width).to(DEVICE) + mean)
        exact = p.double() @ v.double()
        found = [accumulated(p, v, flush) for flush in (S, 128)]
        off, less = ((x - exact).norm() / exact.norm() for x in found)
        print(f"mean {mean}, {S} keys: off {off:.1%}, two-level {less:.2%}")


if __name__ == "__main__":
    parts = {"gradients": gradients, "errors": errors, "sums": sums}
    for name in sys.argv[1:] or parts:
        torch.manual_seed(0)
        parts[name]()
