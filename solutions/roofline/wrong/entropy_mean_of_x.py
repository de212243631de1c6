"""Sums p times x, and takes off the maximum last: far from 0 little is left of it."""

KIND = "precision"
FAILS = [
    "test_entropy",
    "test_entropy_masked",
    "test_entropy_once",
    "test_entropy_any",
]


def entropy(x, out, sram) -> None:
    rows, n = x.shape
    room = sram.capacity // (5 * x.element_size())
    for i in range(rows):
        most, total, weighted = -math.inf, 0.0, 0.0
        for at in range(0, n, room):
            tile = sram.load(x[i : i + 1, at : at + room])
            higher = max(most, tile.amax().item())
            if higher == -math.inf:
                continue
            total *= math.exp(most - higher)
            weighted *= math.exp(most - higher)
            most = higher
            weights = tile.sub(most).exp_()
            total += weights.sum().item()
            weighted += weights.mul_(tile.clamp_(min=-1e5)).sum().item()
            del tile, weights
        fill = most + math.log(total) - weighted / total
        sram.store(out[i : i + 1], sram.alloc(1, 1, fill=fill))
