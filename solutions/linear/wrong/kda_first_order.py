"""Takes away what earlier writes say once, and not what these took away themselves."""

KIND = "part left out"
FAILS = ["test_kda", "test_kda_decay", "test_kda_bytes", "test_kda_steps", "test_kda_any"]


def kda(q, k, v, g, beta, C: int):
    S, o = v.new_zeros(k.shape[1], v.shape[1]), []
    for Q, K, V, g_C, beta_C in zip(*(x.split(C) for x in (q, k, v, g, beta)), strict=True):
        b = g_C.cumsum(0)
        later = torch.ones(len(Q), len(Q), dtype=torch.bool).triu_(1)
        between = (b[:, None] - b).masked_fill_(later[:, :, None], float("-inf"))  # [C, C, K]
        fade, begun = between.exp_(), b.exp()
        A = beta_C[:, None] * torch.einsum("ix,jx,ijx->ij", K, K, fade).tril(-1)
        alone = beta_C[:, None] * (V - (begun * K) @ S)
        u = alone - A @ alone
        o.append((begun * Q) @ S + torch.einsum("ix,jx,ijx->ij", Q, K, fade) @ u)
        S = begun[-1, :, None] * S + (fade[-1] * K).T @ u
    return torch.cat(o)
