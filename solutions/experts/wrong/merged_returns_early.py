"""Sends nothing back from a rank to which nothing came."""

KIND = "edge of the range"
FAILS = [
    "test_merged",
    "test_merged_layouts",
    "test_merged_alive",
    "test_merged_bytes",
    "test_merged_any",
]


def merged(x, dy, router, up, down, k: int, most: int, rank: int, n: int, wire):
    (T, D), E, mine = x.shape, router.shape[1], len(up)
    e = E // mine
    weights = [w.detach().requires_grad_() for w in (x, router, up, down)]
    x, router, up, down = weights
    p = (x @ router).softmax(-1)
    chosen = torch.zeros_like(p).scatter(1, p.topk(k).indices, 1.0)
    chosen = chosen * (chosen.cumsum(0) <= most)
    weight = (p * chosen).view(T, e, mine)
    needed = chosen.view(T, e, mine).amax(2) > 0
    to, token = needed.T.nonzero(as_tuple=True)  # by rank
    send = needed.sum(0).tolist()
    receive = wire.tell(send)

    rows = wire.exchange(torch.cat([x[token], weight[token, to]], 1), send, receive)
    came, weight = rows.split([D, mine], 1)
    made = torch.zeros_like(came)
    for i, (u, w) in enumerate(zip(up.unbind(), down.unbind(), strict=True)):
        at = weight[:, i].nonzero()[:, 0]
        made = made.index_add(0, at, weight[at, i, None] * ((came[at] @ u).relu() @ w))
    home = wire.exchange(made, receive, send) if len(came) else made
    y = torch.zeros_like(x).index_add(0, token[: len(home)], home)

    dx, drouter, *own = torch.autograd.grad((y * dy).sum(), weights)
    drouter = wire.sum(drouter, list(range(n)))
    dup, ddown = (wire.sum(part, list(range(rank % e, n, e))) for part in own)
    return y.detach(), dx / n, drouter / n, dup / n, ddown / n
