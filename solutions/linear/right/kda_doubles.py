"""The inverse as a product of powers, and outputs written in place."""


def kda(q, k, v, g, beta, C):
    o, S = torch.empty_like(v), torch.zeros(k.size(1), v.size(1)).to(v)
    for at in range(0, len(q), C):
        Q, K, V, gates = (x[at : at + C] for x in (q, k, v, g))
        strength = beta[at : at + C].unsqueeze(1)
        b = gates.cumsum(0)
        fade = (b.unsqueeze(1) - b).clamp(max=0).exp()  # what is above the diagonal goes below
        power = -(strength * torch.einsum("ijx,ix,jx->ij", fade, K, K)).tril(-1)
        u = strength * (V - (b.exp() * K) @ S)
        for _ in range(len(Q).bit_length()):
            u = u + power @ u
            power = power @ power
        o[at : at + C] = (b.exp() * Q) @ S
        o[at : at + C] += torch.einsum("ijx,ix,jx->ij", fade, Q, K).tril() @ u
        S = b[-1].exp().unsqueeze(1) * S
        S += (fade[-1] * K).mT @ u
    return o
