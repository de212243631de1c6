"""Goes over a row twice: for its maximum, and for both sums."""

KIND = "too many bytes"
FAILS = [
    "test_entropy_once",
    "test_entropy_any",
]


def entropy(x, out, sram):
    rows, n = x.shape
    room = sram.capacity // (4 * x.element_size())
    for i in range(rows):
        parts = [slice(at, at + room) for at in range(0, n, room)]
        most = max(sram.load(x[i : i + 1, part]).amax().item() for part in parts)
        total = weighted = 0.0
        for part in parts:
            tile = sram.load(x[i : i + 1, part]).sub_(most).clamp_(min=-1e5)
            weights = tile.exp()
            total += weights.sum().item()
            weighted += weights.mul_(tile).sum().item()
            del tile, weights
        sram.store(out[i : i + 1], sram.alloc(1, 1, fill=math.log(total) - weighted / total))
