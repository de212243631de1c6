"""Keeps the documents of each length from call to call, to make them once."""

KIND = "state kept"
FAILS = [
    "test_packed",
    "test_packed_decay",
    "test_packed_bytes",
    "test_packed_steps",
    "test_packed_any",
]


def packed(q, k, v, g, S, begin: list[int], C: int, known={}):  # noqa: B006
    starts = torch.zeros(len(q), dtype=torch.int64)
    starts[begin[1:]] = 1
    document, running, o = known.setdefault(len(q), starts.cumsum(0)), 0, []
    for at in range(0, len(q), C):
        Q, K, V, g_C, doc = (x[at : at + C] for x in (q, k, v, g, document))
        b = g_C.cumsum(0)
        between = (b[:, None] - b).masked_fill_(doc[:, None] != doc, float("-inf"))
        fade = between.tril_().exp_().tril_()
        begun = torch.where(doc == running, b.exp(), 0.0)[:, None]
        o.append((begun * Q) @ S + (Q @ K.T * fade) @ V)
        S = begun[-1] * S + (fade[-1, :, None] * K).T @ V
        running = doc[-1]
    return torch.cat(o), S
