"""What all tensor ranks have counts in the norm once for each, the embedding twice."""

import torch

KIND = "wrong formula"
FAILS = ["test_clipped_once", "test_clipped_bytes", "test_clipped_any"]


def clipped(grads: list, cut: list, tied: int | None, tokens: int, limit: float, sizes: dict, wire):
    s = sizes["s"]
    shards = []
    for i, (grad, own) in enumerate(zip(grads, cut, strict=True)):
        flat = torch.nn.functional.pad(grad.flatten(), (0, -grad.numel() % s))
        shard = wire.sum(wire.scatter(flat, "s"), "r")
        axes = ("" if own else "t") + ("p" if i == tied else "")
        shards.append(wire.sum(shard, axes) if axes else shard)
    total = wire.sum(torch.tensor([float(tokens)], dtype=torch.float64), "rs")
    shards = [shard / total for shard in shards]
    squares = torch.zeros(1, dtype=torch.float64)
    for shard in shards:
        squares = squares + (shard**2).sum()
    norm = wire.sum(squares, "pts").sqrt()
    scale = torch.where(norm > limit, limit / norm, torch.ones_like(norm))
    return [shard * scale for shard in shards]
