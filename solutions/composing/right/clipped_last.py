"""Scales sums, and divides by tokens only with the norm; copies and tensor ranks in one sum."""

import torch


def clipped(grads: list, cut: list, tied: int | None, tokens: int, limit: float, sizes: dict, wire):
    s, parts, squares = sizes["s"], [], 0.0
    for i, grad in enumerate(grads):
        flat = torch.zeros(-(-grad.numel() // s) * s, dtype=torch.float64)
        flat[: grad.numel()] = grad.reshape(-1)
        over, copies = "r", 1
        if not cut[i]:
            over, copies = over + "t", copies * sizes["t"]
        if i == tied:
            over, copies = over + "p", copies * sizes["p"]
        part = wire.sum(wire.scatter(flat, "s"), over)
        squares = squares + part.square().sum() / copies
        parts.append(part)
    total = wire.sum(torch.tensor([tokens], dtype=torch.float64), "rs")
    norm = torch.sqrt(wire.sum(squares.reshape(1), "stp")) / total
    factor = torch.clamp(limit / norm, max=1.0) / total
    return [part * factor for part in parts]
