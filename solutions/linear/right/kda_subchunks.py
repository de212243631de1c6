"""The page's way: sub-chunks, so that left of the diagonal the fades are split and stay matmuls."""


def kda(q, k, v, g, beta, C, SUB=16):
    S, o = v.new_zeros(k.shape[1], v.shape[1]), []
    for Q, K, V, G, strength in zip(*(x.split(C) for x in (q, k, v, g, beta)), strict=True):
        n = len(Q)
        b = G.cumsum(0)
        A = torch.zeros(n, n, dtype=q.dtype)
        P = torch.zeros(n, n, dtype=q.dtype)
        for i in range(0, n, SUB):
            own = slice(i, min(n, i + SUB))
            m = len(b[own])
            seen = torch.ones(m, m, dtype=torch.bool).tril()[:, :, None]
            fade = torch.where(seen, b[own][:, None] - b[own][None], -torch.inf).exp()
            A[own, own] = (K[own][:, None] * K[own][None] * fade).sum(-1).tril(-1)
            P[own, own] = (Q[own][:, None] * K[own][None] * fade).sum(-1)
            if i:
                start = b[i - 1]
                here = (b[own] - start).exp()
                there = (start - b[:i]).exp() * K[:i]
                A[own, :i] = (here * K[own]) @ there.T
                P[own, :i] = (here * Q[own]) @ there.T
        A = strength[:, None] * A
        begun = b.exp()
        rhs = strength[:, None] * (V - (begun * K) @ S)
        u = torch.linalg.solve_triangular(A, rhs, upper=False, unitriangular=True)
        o.append((begun * Q) @ S + P @ u)
        S = begun[-1][:, None] * S + ((b[-1] - b).exp() * K).T @ u
    return torch.cat(o)
