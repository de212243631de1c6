"""U and W of each chunk from an inverse, then what waits for the state."""


def kda(q, k, v, g, beta, C):
    T, made = len(q), []
    for at in range(0, T, C):
        Q, K, V, gates, strength = (x[at : at + C] for x in (q, k, v, g, beta))
        b = torch.cumsum(gates, dim=0)
        i = torch.arange(len(b))
        seen = (i[:, None] >= i)[..., None]
        fade = torch.where(seen, b[:, None, :] - b[None, :, :], -torch.inf).exp()
        keys = (fade * K[None, :, :] * K[:, None, :]).sum(-1)
        A = (strength[:, None] * keys).tril(-1)
        inverse = torch.linalg.inv(torch.eye(len(A), dtype=torch.float64) + A)
        U = inverse @ (strength[:, None] * V)
        W = inverse @ (strength[:, None] * b.exp() * K)
        scores = (fade * K[None] * Q[:, None]).sum(-1)
        made.append((U, W, scores, b.exp() * Q, b[-1].exp(), fade[-1] * K))
    S, o = torch.zeros(k.shape[1], v.shape[1], dtype=torch.float64), []
    for U, W, scores, Q, left, K in made:
        u = U - W @ S
        o.append(Q @ S + scores @ u)
        S = torch.diag(left) @ S + K.T @ u
    return torch.cat(o)
