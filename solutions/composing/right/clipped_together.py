"""One scatter for all gradients, and one sum for each kind of parameter."""

import torch


def clipped(grads: list, cut: list, tied: int | None, tokens: int, limit: float, sizes: dict, wire):
    s = sizes["s"]
    rows = [torch.cat([g.flatten(), g.new_zeros(-g.numel() % s)]).view(s, -1) for g in grads]
    widths = [row.shape[1] for row in rows]
    mine = wire.sum(wire.scatter(torch.cat(rows, 1).flatten(), "s"), "r")
    mine = mine / wire.sum(torch.tensor(float(tokens), dtype=torch.float64), "sr")
    mine = list(mine.split(widths))
    kinds = [("" if own else "t") + ("p" if i == tied else "") for i, own in enumerate(cut)]
    for axes in ("t", "p", "tp"):
        places = [i for i, kind in enumerate(kinds) if kind == axes]
        if places:
            summed = wire.sum(torch.cat([mine[i] for i in places]), axes)
            for i, part in zip(places, summed.split([widths[i] for i in places]), strict=True):
                mine[i] = part
    squares = torch.zeros((), dtype=torch.float64)
    for part, kind in zip(mine, kinds, strict=True):
        copies = 1
        for axis in kind:
            copies *= sizes[axis]
        squares = squares + part.dot(part) / copies
    norm = wire.sum(wire.sum(wire.sum(squares, "s"), "t"), "p").sqrt()
    if norm.item() > limit:
        mine = [part * (limit / norm) for part in mine]
    return mine
