"""Goes through the chunks of each document by itself."""

KIND = "too much time"
FAILS = ["test_packed_steps", "test_packed_any"]


def packed(q, k, v, g, S, begin: list[int], C: int):
    o = []
    for first, end in zip(begin, [*begin[1:], len(q)], strict=True):
        if first:
            S = torch.zeros_like(S)
        for at in range(first, end, C):
            Q, K, V, g_C = (x[at : min(end, at + C)] for x in (q, k, v, g))
            b = g_C.cumsum(0)
            fade = (b[:, None] - b).tril().exp().tril()
            begun = b.exp()[:, None]
            o.append(begun * (Q @ S) + (Q @ K.T * fade) @ V)
            S = begun[-1] * S + (fade[-1, :, None] * K).T @ V
    return torch.cat(o), S
