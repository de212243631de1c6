"""Splits the fade at the chunk's begin, so that one factor overflows."""

KIND = "precision"
FAILS = ["test_kda_decay", "test_kda_bytes", "test_kda_steps", "test_kda_any"]


def kda(q, k, v, g, beta, C: int):
    S, o = v.new_zeros(k.shape[1], v.shape[1]), []
    for Q, K, V, g_C, beta_C in zip(*(x.split(C) for x in (q, k, v, g, beta)), strict=True):
        b = g_C.cumsum(0)
        begun, rising = b.exp(), (-b).exp()
        A = beta_C[:, None] * ((begun * K) @ (rising * K).T).tril(-1)
        alone = beta_C[:, None] * (V - (begun * K) @ S)
        u = torch.linalg.solve_triangular(A, alone, upper=False, unitriangular=True)
        o.append((begun * Q) @ S + ((begun * Q) @ (rising * K).T).tril() @ u)
        S = begun[-1, :, None] * (S + (rising * K).T @ u)
    return torch.cat(o)
