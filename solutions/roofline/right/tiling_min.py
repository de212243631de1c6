"""One expression for the seconds, and the least of all."""


def tiling(m, n, k, chip):
    def up(x, y):
        return (x + y - 1) // y

    def seconds(choice):
        high, wide, split = choice
        deep = up(up(k, 64), split) * 64
        waves = up(up(m, high) * up(n, wide) * split, chip["sms"])
        a_wave = max(2 * high * wide / chip["rate"], 2 * (high + wide) / chip["l2"])
        operands, parts = 2 * k * (m + n), 4 * m * n * split
        first = operands + (parts if split > 1 else 2 * m * n)
        took = max(waves * chip["sms"] * deep * a_wave, first / chip["memory"], chip["start"])
        if split > 1:
            took += max((parts + 2 * m * n) / chip["memory"], chip["start"])
        return took

    sides = [2**i for i in range(4, 9)]
    choices = [
        (high, wide, split)
        for split in (1, 2, 4, 8, 16)
        if split <= up(k, 64)
        for high in sides
        for wide in sides
        if high * wide <= 32768 and 512 * (high + wide) <= chip["shared"]
    ]
    best = min(choices, key=seconds)
    return (*best, seconds(best))
