"""A recurrence that decides what to forget, in three ways; and a window's ring.

python griffin.py
"""

import torch
from torch.nn.functional import softplus

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
T, D = 13, 4  # tokens, channels
some = {"dtype": torch.float64, "device": device}


def rg_lru(x, input_gate, recurrence_gate, a_param, start):
    """What is left of a channel's one number of state, and what is added."""
    log_a = -8 * recurrence_gate * softplus(a_param)
    log_a = log_a.masked_fill(start, -1e4)  # a document begins: nothing is left
    free = -torch.expm1(2 * log_a)  # 1 - a²
    root = free.detach().sqrt()  # its value; its slope is at most 1,000
    room = root + (0.5 / root).clamp(max=1000) * (free - free.detach())
    return log_a.exp(), room * input_gate * x


def one_by_one(a, u):
    h, states = torch.zeros_like(u[0]), []
    for t in range(len(u)):
        h = a[t] * h + u[t]
        states.append(h)
    return torch.stack(states)


# What a gate leaves of the state, and how much of the input it lets in.
one, p = torch.ones(1, 1, **some), torch.tensor(-4.0, **some)
goes_on = torch.tensor(False, device=device)
for r in (0.0, 0.01, 0.5, 1.0):
    gate = torch.full_like(one, r, requires_grad=True)
    a_r, u_r = rg_lru(one, one, gate, p, goes_on)
    u_r.backward()
    print(f"gate {r:4.2f}: a = {a_r.item():.4f}, lets in {u_r.item():.4f},", end=" ")
    print(f"gradient {gate.grad.item():.2f}")

# White noise keeps its variance: a² h² + (1 - a²) x². A constant does not.
a_one = torch.tensor(0.99, dtype=torch.float64)
noise = torch.randn(4096, 64, dtype=torch.float64)
for name, signal in (("noise", noise), ("a constant", torch.ones_like(noise))):
    u = (1 - a_one**2).sqrt() * signal
    h = one_by_one(a_one.expand_as(u), u)
    print(f"{name} of mean square 1 gives {h[1024:].square().mean():.2f}")


def in_doubling_steps(a, u):
    """After a step of s, each token has taken in the 2s tokens up to itself."""
    a, u, s = a.clone(), u.clone(), 1
    while s < len(u):
        u[s:], a[s:] = u[s:] + a[s:] * u[:-s], a[s:] * a[:-s]
        s *= 2
    return u


def in_chunks(a, u, C):
    """Chunks from 0; then the states between them; then each corrects its own."""
    ends, reach = [], []
    for i in range(0, len(u), C):
        ends.append(one_by_one(a[i : i + C], u[i : i + C]))
        reach.append(a[i : i + C].cumprod(0))
    h, states = torch.zeros_like(u[0]), []
    for end, left in zip(ends, reach, strict=True):
        states.append(end + left * h)
        h = states[-1][-1]
    return torch.cat(states)


x = torch.randn(T, D, **some)
gates = torch.randn(2, T, D, **some).sigmoid()
start = torch.arange(T, device=device)[:, None] == 0
a, u = rg_lru(x, gates[0], gates[1], torch.linspace(-6, 0, D, **some), start)
h = one_by_one(a, u)
print("left after a token, channel by channel:", [f"{x:.3f}" for x in a.mean(0)])
others = {"doubling": in_doubling_steps(a, u), "chunks of 4": in_chunks(a, u, 4)}
for name, other in others.items():
    same = (other - h).abs().max() < 1e-12
    print(f"{name}: largest difference below 1e-12: {bool(same)}")


def local_attention(q, k, v, W):
    """Each query sees its own key and the W - 1 before it."""
    t = torch.arange(len(q), device=q.device)
    back = t[:, None] - t
    scores = (q @ k.mT).masked_fill((back < 0) | (back >= W), -torch.inf)
    return scores.softmax(-1) @ v


def from_a_ring(q, k, v, W):
    """Token t is written into slot t % W, over the key that fell out."""
    keys, values, rows = torch.empty_like(k[:W]), torch.empty_like(v[:W]), []
    for t in range(len(q)):
        keys[t % W], values[t % W] = k[t], v[t]
        held = min(t + 1, W)
        rows.append((keys[:held] @ q[t]).softmax(0) @ values[:held])
    return torch.stack(rows)


same = (from_a_ring(x, a, u, 5) - local_attention(x, a, u, 5)).abs().max() < 1e-12
print(f"a ring of 5 slots: largest difference below 1e-12: {bool(same)}")

# RecurrentGemma 2B: 18 layers of 2,560 channels in fp32; 8 windows in bf16.
print(f"states {18 * 2560 * 4:,} bytes, windows {8 * 2048 * 2 * 256 * 2:,} bytes")
