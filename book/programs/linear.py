"""Attention without the softmax: q, k [T, K] and v [T, V] of one head, causal, no scale."""

import torch
from torch.linalg import solve_triangular
from torch.nn.functional import elu, normalize


def empty_state(k, v):
    return v.new_zeros(k.shape[1], v.shape[1])  # [K, V]


def recurrent(q, k, v):
    S, o = empty_state(k, v), []
    for t in range(len(q)):
        S = S + torch.outer(k[t], v[t])
        o.append(q[t] @ S)
    return torch.stack(o)


def parallel(q, k, v):
    return (q @ k.T).tril() @ v


def chunks(C, *tensors):
    return zip(*(x.split(C) for x in tensors), strict=True)


def chunked(q, k, v, C):
    S, o = empty_state(k, v), []
    for Q, K, V in chunks(C, q, k, v):
        o.append(Q @ S + parallel(Q, K, V))
        S = S + K.T @ V
    return torch.cat(o)


def fading(g):
    """At token i: what is left of the state before; of what token j wrote."""
    b = g.cumsum(0)
    return b.exp()[:, None], (b[:, None] - b).tril().exp().tril()


def gated_parallel(q, k, v, g):
    return (q @ k.T * fading(g)[1]) @ v


def gated_chunked(q, k, v, g, C):
    S, o = empty_state(k, v), []
    for Q, K, V, g_C in chunks(C, q, k, v, g):
        begun, fade = fading(g_C)
        o.append(begun * (Q @ S) + (Q @ K.T * fade) @ V)
        S = begun[-1] * S + (fade[-1, :, None] * K).T @ V
    return torch.cat(o)


def delta_recurrent(q, k, v, g, beta):
    S, o = empty_state(k, v), []
    for t in range(len(q)):
        S = g[t].exp() * S
        S = S + torch.outer(k[t], beta[t] * (v[t] - k[t] @ S))
        o.append(q[t] @ S)
    return torch.stack(o)


def delta_chunked(q, k, v, g, beta, S, C):
    o = []
    for Q, K, V, g_C, beta_C in chunks(C, q, k, v, g, beta):
        begun, fade = fading(g_C)
        A = (beta_C[:, None] * (K @ K.T) * fade).tril(-1)
        one = torch.eye(len(A), dtype=A.dtype, device=A.device)
        inverse = solve_triangular(one + A, one, upper=False)
        U = inverse @ (beta_C[:, None] * V)
        W = inverse @ (beta_C[:, None] * begun * K)
        written = U - W @ S  # the first line that needs the state
        o.append(begun * (Q @ S) + (Q @ K.T * fade) @ written)
        S = begun[-1] * S + (fade[-1, :, None] * K).T @ written
    return torch.cat(o), S  # the state goes into the next piece


def same(name, one, other):
    print(f"{name}: {torch.allclose(one, other, rtol=0, atol=1e-12)}")


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    T, K, V, C = 100, 8, 5, 16  # no chunk divides 100
    q, k = torch.randn(2, T, K).to(device)
    v = torch.randn(T, V).to(device)
    a, beta = torch.rand(2, T).to(device)  # decay, share that is written
    plain, gated = (q, k, v), (q, k, v, a.log())
    delta = q, normalize(k, dim=1), v, a.log(), beta
    o = recurrent(*plain)
    same("plain, recurrent as parallel", o, parallel(*plain))
    same("plain, recurrent as chunked", o, chunked(*plain, C))
    o = gated_parallel(*gated)
    same("gated, parallel as chunked", o, gated_chunked(*gated, C))
    o = delta_recurrent(*delta)
    o_C, _ = delta_chunked(*delta, empty_state(k, v), C)
    same("delta, recurrent as chunked", o, o_C)
    for T in 100, 10_000:
        cache = 4 * T * (K + V)
        print(f"{T} tokens: state {4 * K * V} B, keys and values {cache} B")
    k, v = torch.ones(2, 1), torch.tensor([[1.0], [2.0]])
    plain = recurrent(k, k, v)[-1].item()
    delta = delta_recurrent(k, k, v, torch.zeros(2), torch.ones(2))[-1].item()
    print(f"one key, 1 then 2: plain {plain:g}, delta {delta:g}")
    low_precision(T=4096, K=64)


def low_precision(T, K):
    q, k = elu(torch.randn(2, T, K)) + 1
    z = k.cumsum(0)
    most = torch.finfo(torch.float16).max
    over = ((q * z).sum(1) > most).nonzero()[0].item()
    print(f"fp16: q . z is above {most:g} from token {over}")
    total = torch.zeros(K, dtype=torch.bfloat16)
    for k_t in k.bfloat16():
        total += k_t
    share = (total / z[-1]).mean()
    print(f"bf16: a sum of {T} keys has {share:.0%} of what it should")


if __name__ == "__main__":
    main()
