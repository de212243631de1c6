"""Weights travel in a message of their own; token by token, expert by expert."""


def merged(x, dy, router, up, down, k, most, rank, n, wire):
    T, D = x.shape
    E, mine = router.shape[1], up.shape[0]
    e = E // mine
    x, router, up, down = (w.clone().requires_grad_() for w in (x, router, up, down))
    p = torch.softmax(x @ router, 1)
    best = torch.topk(p, k, dim=1).indices
    chosen = torch.nn.functional.one_hot(best, E).sum(1)
    kept = (chosen > 0) & (torch.cumsum(chosen, 0) <= most)
    tokens = []
    for r in range(e):
        here = kept[:, r * mine : (r + 1) * mine].any(1)
        tokens.append(torch.nonzero(here).flatten())
    send = [len(rows) for rows in tokens]
    receive = wire.tell(send)
    masked = torch.where(kept, p, torch.zeros_like(p))
    parts = [masked[rows, r * mine : (r + 1) * mine] for r, rows in enumerate(tokens)]
    rows = wire.exchange(torch.cat([x[rows] for rows in tokens]), send, receive)
    weight = wire.exchange(torch.cat(parts), send, receive)
    made = 0.0 * rows
    for i in range(mine):
        hidden = torch.relu(torch.einsum("td,df->tf", rows, up[i]))
        made = made + weight[:, i : i + 1] * torch.einsum("tf,fd->td", hidden, down[i])
    home = wire.exchange(made, receive, send)
    y = torch.zeros(T, D, dtype=torch.float64)
    for rows, part in zip(tokens, home.split(send), strict=True):
        y = y.index_add(0, rows, part)
    gradients = torch.autograd.grad(y, [x, router, up, down], grad_outputs=dy / n)
    everyone, replicas = list(range(n)), [r for r in range(n) if r % e == rank % e]
    dx, drouter, dup, ddown = gradients
    return (
        y.detach(),
        dx,
        wire.sum(drouter, everyone),
        wire.sum(dup, replicas),
        wire.sum(ddown, replicas),
    )
