"""Divides the gradients that it is given."""

import torch

KIND = "mutates input"
FAILS = ["test_clipped", "test_clipped_once", "test_clipped_bytes", "test_clipped_any"]


def clipped(grads: list, cut: list, tied: int | None, tokens: int, limit: float, sizes: dict, wire):
    s = sizes["s"]
    total = wire.sum(torch.tensor([float(tokens)], dtype=torch.float64), "rs")
    shards = []
    for i, (grad, own) in enumerate(zip(grads, cut, strict=True)):
        flat = torch.nn.functional.pad(grad.div_(total).flatten(), (0, -grad.numel() % s))
        shard = wire.sum(wire.scatter(flat, "s"), "r")
        axes = ("" if own else "t") + ("p" if i == tied else "")
        shards.append(wire.sum(shard, axes) if axes else shard)
    squares = torch.zeros(1, dtype=torch.float64)
    for i, (shard, own) in enumerate(zip(shards, cut, strict=True)):
        ranks = (1 if own else sizes["t"]) * (sizes["p"] if i == tied else 1)
        squares = squares + (shard**2).sum() / ranks
    norm = wire.sum(squares, "pts").sqrt()
    scale = torch.where(norm > limit, limit / norm, torch.ones_like(norm))
    return [shard * scale for shard in shards]
