"""Sums what tensor ranks have whole, and the embedding, before it is cut into shards."""

import torch

KIND = "too many bytes"
FAILS = ["test_clipped_bytes", "test_clipped_any"]


def clipped(grads: list, cut: list, tied: int | None, tokens: int, limit: float, sizes: dict, wire):
    s = sizes["s"]
    shards = []
    for i, (grad, own) in enumerate(zip(grads, cut, strict=True)):
        axes = ("" if own else "t") + ("p" if i == tied else "")
        grad = wire.sum(grad, axes) if axes else grad
        flat = torch.nn.functional.pad(grad.flatten(), (0, -grad.numel() % s))
        shards.append(wire.sum(wire.scatter(flat, "s"), "r"))
    total = wire.sum(torch.tensor([float(tokens)], dtype=torch.float64), "rs")
    shards = [shard / total for shard in shards]
    squares = torch.zeros(1, dtype=torch.float64)
    for i, (shard, own) in enumerate(zip(shards, cut, strict=True)):
        ranks = (1 if own else sizes["t"]) * (sizes["p"] if i == tied else 1)
        squares = squares + (shard**2).sum() / ranks
    norm = wire.sum(squares, "pts").sqrt()
    scale = torch.where(norm > limit, limit / norm, torch.ones_like(norm))
    return [shard * scale for shard in shards]
