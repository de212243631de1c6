"""Retention in its three forms, for H heads: q and k [H, T, K], v [H, T, V]."""

from math import log

import torch
from torch.nn.functional import silu


def log_decays(H):
    return torch.log1p(-(2.0 ** (-5 - torch.arange(H)))).view(H, 1, 1)


def recurrent(q, k, v, g, S):
    o, decay = [], g.exp()
    for t in range(q.shape[1]):
        S = decay * S + k[:, t, :, None] * v[:, t, None, :]
        o.append(q[:, t, None, :] @ S)
    return torch.cat(o, 1), S


def parallel(q, k, v, g):
    n = torch.arange(q.shape[1])
    distance = n[:, None] - n  # row: the query's, column: the key's token
    L = (g * distance.clamp(min=0)).exp().tril()
    return (q @ k.mT * L) @ v


def chunked(q, k, v, g, S, C):
    o = []
    for Q, K, V in zip(*(x.split(C, 1) for x in (q, k, v)), strict=True):
        rows = Q.shape[1]  # C, or fewer in the last chunk
        i = torch.arange(rows)[:, None]
        read, write = (g * (i + 1)).exp(), (g * (rows - 1 - i)).exp()
        o.append(read * (Q @ S) + parallel(Q, K, V, g))
        S = (g * rows).exp() * S + (write * K).mT @ V
    return torch.cat(o, 1), S


def rotate(x, first=0):
    """Turn neighbours, as complex numbers, by position times speed."""
    speeds = 10000 ** -torch.linspace(0, 1, x.shape[-1] // 2)
    angles = torch.arange(first, first + x.shape[-2])[:, None] * speeds
    x = x.to(speeds.dtype)  # bf16 has no complex numbers
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.exp(1j * angles)).flatten(-2)


def normalize(o, eps):
    return o * torch.rsqrt(o.square().mean(-1, keepdim=True) + eps)


def layer(x, weights, S, first=0, C=16, eps=1e-6):
    """RetNet's layer for x [T, width], after `first` tokens."""
    H, K, _ = S.shape
    q, k, v, gate = (x @ w for w in weights[:4])  # v and gate: wider
    q, k, v = (y.unflatten(-1, (H, -1)).transpose(0, 1) for y in (q, k, v))
    q, k = rotate(q, first), rotate(k * K**-0.5, first)
    o, S = chunked(q, k, v, log_decays(H), S, C)
    o = normalize(o, eps).transpose(0, 1).flatten(-2)
    return (silu(gate) * o) @ weights[4], S


def compare_forms(q, k, v, g, S):
    o, last = recurrent(q, k, v, g, S)
    same = torch.allclose(o, parallel(q, k, v, g))
    print("recurrent as parallel:", same)
    for C in 1, 16, 200:
        o_C, S_C = chunked(q, k, v, g, S, C)
        same = torch.allclose(o_C, o) and torch.allclose(S_C, last)
        print(f"recurrent as chunks of {C}:", same)


def shift(q, k, v, g):
    early = parallel(rotate(q), rotate(k), v, g)
    late = parallel(rotate(q, 1000), rotate(k, 1000), v, g)
    print("1000 tokens later:", torch.allclose(early, late))


def divide(o):
    for size, eps in (1, 0), (1, 1e-6), (1e-3, 0), (1e-3, 1e-6):
        whole = normalize(size * o, eps)
        change = normalize(size * o / 10, eps) - whole
        share = change.norm() / whole.norm()
        print(f"size {size:g}, eps {eps:g}: a tenth changes {share:.3%}")


def decode(x, weights, S, prompt):
    whole, _ = layer(x, weights, S)
    y, S = layer(x[:prompt], weights, S)
    parts = [y]
    for t in range(prompt, len(x)):
        y, S = layer(x[t : t + 1], weights, S, first=t)
        parts.append(y)
    same = torch.allclose(torch.cat(parts), whole)
    print("prefill, then token by token:", same)


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    if torch.cuda.is_available():
        torch.set_default_device("cuda")
    half_lives = (f"{log(0.5) / g:.0f}" for g in log_decays(8).flatten())
    print("half-lives:", *half_lives, "tokens")
    H, T, K, V = 4, 101, 6, 12  # no chunk divides 101
    g, S = log_decays(H), torch.zeros(H, K, V)
    q, k = torch.randn(2, H, T, K)
    v = torch.randn(H, T, V)
    compare_forms(q, k, v, g, S)
    grown = (-g[0, 0] * torch.arange(400)).exp().half()
    print("fp16: 1 / decay^t is inf at", grown.isinf().nonzero()[0].item())
    shift(q, k, v, g)
    divide(normalize(parallel(q, k, v, g), eps=0))
    D = H * K
    widths = (D, D), (D, D), (D, 2 * D), (D, 2 * D), (2 * D, D)
    weights = [torch.randn(a, b) * a**-0.5 for a, b in widths]
    decode(torch.randn(T, D), weights, S, prompt=60)


if __name__ == "__main__":
    main()
