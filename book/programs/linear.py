"""Attention without the softmax: q, k [T, K] and v [T, V] of one head, causal, no scale."""

import torch
from torch.nn.functional import elu, normalize


def recurrent(q, k, v):
    S, o = v.new_zeros(k.shape[1], v.shape[1]), []
    for q_t, k_t, v_t in zip(q, k, v, strict=True):
        S = S + torch.outer(k_t, v_t)
        o.append(q_t @ S)
    return torch.stack(o)


def parallel(q, k, v):
    return (q @ k.T).tril() @ v


def chunked(q, k, v, C):
    S, o = v.new_zeros(k.shape[1], v.shape[1]), []
    for Q, K, V in zip(q.split(C), k.split(C), v.split(C), strict=True):
        o.append(Q @ S + parallel(Q, K, V))
        S = S + K.T @ V
    return torch.cat(o)


def fading(g):
    """What is left at token i: of the state before the first token; of what token j wrote."""
    b = g.cumsum(0)
    return b.exp()[:, None], (b[:, None] - b).tril().exp().tril()


def gated_parallel(q, k, v, g):
    return (q @ k.T * fading(g)[1]) @ v


def gated_chunked(q, k, v, g, C):
    S, o = v.new_zeros(k.shape[1], v.shape[1]), []
    for Q, K, V, g_C in zip(*(x.split(C) for x in (q, k, v, g)), strict=True):
        begun, fade = fading(g_C)
        o.append(begun * (Q @ S) + (Q @ K.T * fade) @ V)
        S = begun[-1] * S + (K * fade[-1][:, None]).T @ V
    return torch.cat(o)


def delta_recurrent(q, k, v, g, beta):
    S, o = v.new_zeros(k.shape[1], v.shape[1]), []
    for q_t, k_t, v_t, g_t, beta_t in zip(q, k, v, g, beta, strict=True):
        S = g_t.exp() * S
        S = S + torch.outer(k_t, beta_t * (v_t - k_t @ S))
        o.append(q_t @ S)
    return torch.stack(o)


def delta_chunked(q, k, v, g, beta, C):
    S, o = v.new_zeros(k.shape[1], v.shape[1]), []
    for Q, K, V, g_C, beta_C in zip(*(x.split(C) for x in (q, k, v, g, beta)), strict=True):
        begun, fade = fading(g_C)
        A = (beta_C[:, None] * (K @ K.T) * fade).tril(-1)
        one = torch.eye(len(A), dtype=A.dtype, device=A.device)
        solved = torch.linalg.solve_triangular(one + A, beta_C.diag(), upper=False)
        W, U = solved @ (begun * K), solved @ V  # so far without the state
        written = U - W @ S
        o.append(begun * (Q @ S) + (Q @ K.T * fade) @ written)
        S = begun[-1] * S + (K * fade[-1][:, None]).T @ written
    return torch.cat(o)


def same(name, one, other):
    print(f"{name} agree: {torch.allclose(one, other, rtol=0, atol=1e-12)}")


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    T, K, V, C = 100, 8, 5, 16  # no chunk divides 100
    q, k = torch.randn(2, T, K, dtype=torch.float64).to(device)
    v = torch.randn(T, V, dtype=torch.float64).to(device)
    same("plain: recurrent and parallel", recurrent(q, k, v), parallel(q, k, v))
    same("plain: recurrent and chunked", recurrent(q, k, v), chunked(q, k, v, C))
    a, beta = torch.rand(2, T, dtype=torch.float64).to(device)
    gated = q, k, v, a.log()
    same("gated: parallel and chunked", gated_parallel(*gated), gated_chunked(*gated, C))
    delta = q, normalize(k, dim=1), v, a.log(), beta
    same("delta: recurrent and chunked", delta_recurrent(*delta), delta_chunked(*delta, C))
    for T in 100, 10_000:
        print(f"after {T} tokens: {4 * K * V} B of state, {4 * T * (K + V)} B of keys and values")
    key, values = torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[1.0], [2.0]])
    plain = recurrent(key, key, values)[-1]
    delta = delta_recurrent(key, key, values, torch.zeros(2), torch.ones(2))[-1]
    print(f"one key, values 1 and then 2: plain {plain.item():g}, delta {delta.item():g}")
    low_precision(T=4096, K=64)


def low_precision(T, K):
    q, k = elu(torch.randn(2, T, K, dtype=torch.float64)) + 1
    z = k.cumsum(0)
    most = torch.finfo(torch.float16).max
    print(f"fp16: q . z is above {most:g} at token {((q * z).sum(1) > most).nonzero()[0].item()}")
    summed = torch.zeros(K, dtype=torch.bfloat16)
    for k_t in k.bfloat16():
        summed += k_t
    share = (summed.double() / z[-1]).mean()
    print(f"bf16: the sum of {T} keys is {share:.0%} of what it should be")


if __name__ == "__main__":
    main()
